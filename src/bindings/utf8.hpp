// Python's texts as UTF-8.
#pragma once

#include <Python.h>

#include <string>

namespace gpuprof::bindings {

// A str as UTF-8; a lone surrogate becomes U+FFFD. Needs the interpreter lock; throws
// pybind11::error_already_set for lack of memory.
std::string utf8(PyObject* text);

}  // namespace gpuprof::bindings
