// The Python functions of gpuprof that C++ calls. No other file of the bindings names one.
//
// All functions need the interpreter lock and run Python code: the first call imports the module.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <cstdint>

#include "driver/error.hpp"

namespace gpuprof::bindings {

enum class Callback : std::uint8_t {
  kDecorate,
  kNameOf,
  kMakeScope,
  kRemakeScope,
  kBeginMemory,
  kEndMemory,
  kMemoryUse,
  kRemakeAnnotation,
  kPayload,
  kPlainNumber,
  kSameValue,
  kWriterSpan,
  kTraceSpan,
  kOpenTraces,
  kNameThread,
  kCallListeners,
};

// The function, which stays alive once it was found. Borrowed; throws py::error_already_set.
PyObject* callback(Callback which);

// Calls a function without arguments, found anew each time. Only an interrupt comes out of it.
void notify(Callback which);

// What __reduce__ returns for an object with `name` and `_options`.
pybind11::tuple reduce_by(Callback remake, pybind11::handle self);

// The instance of gpuprof.errors that stands for `error`.
pybind11::object make_exception(const driver::Error& error);

}  // namespace gpuprof::bindings
