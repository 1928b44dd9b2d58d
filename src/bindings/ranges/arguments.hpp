// The arguments that annotate(), mark() and range_start() share, checked.
//
// All functions need the interpreter lock. Wrong arguments are py::type_error and py::value_error,
// which name the argument, what was given and what is accepted.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <string>

#include "nvtx/range.hpp"

namespace gpuprof::bindings {

struct RangeArguments {
  pybind11::object name;           // a str, None, or whatever else was given
  pybind11::object color;          // None, a str or an int
  pybind11::object category;       // None or a str
  pybind11::object payload;        // None, an int, a float, or an array as it was given
  pybind11::object domain;         // None or a str; '' is NVTX's own domain
  pybind11::object args;           // None, or a dict of their own
  pybind11::object shown_payload;  // what traces show of the payload, or None
  nvtx::Attributes attributes;     // made of them
  std::string domain_name;         // where `domain` is a str
};

// Reads the arguments of a METH_FASTCALL | METH_KEYWORDS function called `function`.
RangeArguments read_range_arguments(const char* function, PyObject* const* arguments,
                                    Py_ssize_t count, PyObject* keywords);

// TypeError unless the name is a str.
void require_name(const char* function, const RangeArguments& arguments);

}  // namespace gpuprof::bindings
