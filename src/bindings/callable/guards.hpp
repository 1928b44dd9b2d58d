// What a captured graph takes for granted of torch's modules, optimizers and tensors: which objects
// are in their dicts, lists and sets, and where each tensor's memory is and how it is laid out.
//
// From Python 3.12 on the interpreter tells when a dict is about to change, and before, each dict
// has a version: its entries are compared only after a change. Lists and sets have neither, and are
// compared each time. So are tensors, by torch's C interface where it is there, by DLPack's
// exchange API, or by their attributes. All functions need the interpreter lock. Only tensors that
// have neither of the first two, and keys that are tensors, run Python code.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

namespace gpuprof::bindings {

// Throws py::type_error for what is no `_core._Guards`.
void check_guards(pybind11::handle object);

// Whether all that was compared is unchanged. `guards` is a `_core._Guards`, without a check.
bool guards_hold(PyObject* guards);

}  // namespace gpuprof::bindings
