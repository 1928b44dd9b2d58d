// flops=, nbytes= and memory= of scopes and samples, between Python and timing/work.hpp. All
// functions need the interpreter lock.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <optional>

#include "timing/sample.hpp"
#include "timing/statistics.hpp"
#include "timing/work.hpp"

namespace gpuprof::bindings {

// An amount of work. None is none; what is no finite number >= 0 is a TypeError or ValueError that
// names `argument`.
std::optional<double> amount_of(PyObject* value, const char* argument);

// A gpuprof.results.MemoryUse, or None where the memory was not asked for or is not read.
pybind11::object memory_of(const timing::Sample& sample);

// What a pickle holds of a sample's details, and back.
pybind11::tuple details_state(const timing::Sample& sample);
void restore_details(timing::Sample& sample, const pybind11::tuple& state);

// The sums of a row as plain data; None where there are none.
pybind11::object work_dict(const timing::WorkSums& sums);
pybind11::object memory_dict(const timing::MemorySums& sums);

}  // namespace gpuprof::bindings
