// Python values as JSON for the args of trace events.
//
// Strict JSON comes out whatever goes in: NaN and infinity become strings, and so do integers that
// a double cannot hold, because viewers read numbers as doubles. What JSON has no form for is its
// repr, an array its type alone. Nesting deeper than kMaxArgsDepth and texts longer than
// trace::kMaxTextBytes are cut. Runs Python code (a repr); an exception in it becomes the text
// "<...>", an interrupt passes through as pybind11::error_already_set.
#pragma once

#include <Python.h>

#include <string>

namespace gpuprof::bindings {

inline constexpr int kMaxArgsDepth = 8;

// Appends `"name":value`, after a comma where `out` is not empty.
void append_member(std::string& out, const char* name, PyObject* value);

// All members of a dict, without braces. Other mappings and None give nothing.
std::string members_of(PyObject* dict);

}  // namespace gpuprof::bindings
