// Paths as Python sees them. All functions need the interpreter lock and throw
// pybind11::error_already_set for lack of memory.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

#include "timing/path.hpp"

namespace gpuprof::bindings {

// For people: the names joined by '/'.
pybind11::str path_text(const timing::Path& path);

// The names, outermost first.
pybind11::typing::Tuple<pybind11::str, pybind11::ellipsis> path_names(const timing::Path& path);

}  // namespace gpuprof::bindings
