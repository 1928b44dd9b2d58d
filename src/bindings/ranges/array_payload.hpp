// Numbers, and arrays of them as bytes that a tool can read, as payloads of ranges.
//
// All functions need the interpreter lock.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "nvtx/range.hpp"

namespace gpuprof::bindings {

// The number itself, also of NumPy's scalars; null for what is none. Not of arrays: to read one
// could wait for the GPU.
pybind11::object as_number(const pybind11::object& value);

// A copy of the numbers of a buffer (bytes, array.array, a NumPy array) or of a list, tuple or
// range; null for what is neither. Only host memory is read, so that nothing waits for a GPU.
// Throws py::type_error for elements that are no numbers.
std::shared_ptr<const nvtx::ArrayPayload> array_payload_of(const pybind11::object& value);

// The same for traces: a list of the numbers, or of more than 64 a text that says how many.
pybind11::object shown_array(const nvtx::ArrayPayload& payload);

}  // namespace gpuprof::bindings
