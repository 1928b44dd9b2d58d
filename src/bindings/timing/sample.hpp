// gpuprof.Sample: a CPython type with a free list, because one is made at every entry of a scope
// and a pybind11 object costs ten times as much. It owns one reference to a timing::Sample. All
// functions need the interpreter lock.
#pragma once

#include <Python.h>

#include <pybind11/pybind11.h>
#include <pybind11/typing.h>
#include "timing/path.hpp"
#include "timing/sample.hpp"

namespace gpuprof::bindings {

// A new Python object that takes over the reference. Null with MemoryError set.
PyObject* wrap_sample(timing::SampleRef sample) noexcept;

// The sample of such an object.
timing::SampleRef sample_in(PyObject* object) noexcept;

// The sample that stands for "timing was off": always the same object. A new reference.
PyObject* disabled_sample() noexcept;

// The same for "left out, to stay within the budget".
PyObject* left_out_sample() noexcept;

// Waits until the sample is known, handling signals. Throws.
double sample_milliseconds(timing::Sample& sample);
// The same for who asks for it: the listeners are called then.
double read_milliseconds(timing::Sample& sample);

// The names, outermost first.
pybind11::typing::Tuple<pybind11::str, pybind11::ellipsis> path_names(const timing::Path& path);

}  // namespace gpuprof::bindings
