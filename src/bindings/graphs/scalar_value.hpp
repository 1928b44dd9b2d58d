// Python numbers to the bits of a device scalar, and back. Needs the interpreter lock.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

#include "graphs/device_scalar_type.hpp"

namespace gpuprof::bindings {

// The bits of `value` in `format`. Takes what has __index__ or __float__, NumPy's scalars among
// them; for an integer format its value must be an integer in range. Throws py::type_error,
// py::value_error, or what the object's own conversion raised.
std::uint64_t scalar_bits(PyObject* value, const graphs::ScalarFormat& format);

// A Python bool, int or float.
pybind11::object scalar_value(const graphs::ScalarFormat& format, std::uint64_t bits);

}  // namespace gpuprof::bindings
