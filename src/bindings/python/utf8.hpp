// Python's texts as UTF-8.
#pragma once

#include <Python.h>
#include <pybind11/pytypes.h>

#include <string>

namespace gpuprof::bindings {

// A str as UTF-8; a lone surrogate becomes U+FFFD. Needs the interpreter lock; throws
// pybind11::error_already_set for lack of memory.
std::string utf8(PyObject* text);

// `text` with U+FFFD for each NUL.
std::string without_nul(std::string text);

// The str of UTF-8, with U+FFFD for what is none, such as the bytes of a path in another encoding.
// Needs the interpreter lock; throws pybind11::error_already_set for lack of memory.
pybind11::str from_utf8(const std::string& text);

}  // namespace gpuprof::bindings
