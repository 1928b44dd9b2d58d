// gpuprof.Sample: a CPython type with a free list, because one is made at every entry of a scope
// and a pybind11 object costs ten times as much. It owns one reference to a timing::Sample. All
// functions need the interpreter lock.
#pragma once

#include <Python.h>

#include "timing/sample.hpp"

namespace gpuprof::bindings {

// A new Python object that takes over the reference. Null with MemoryError set.
PyObject* wrap_sample(timing::SampleRef sample) noexcept;

// The sample that stands for "timing was off": always the same object. A new reference.
PyObject* disabled_sample() noexcept;

// Waits until the sample is known, handling signals. Throws.
double sample_milliseconds(timing::Sample& sample);

}  // namespace gpuprof::bindings
