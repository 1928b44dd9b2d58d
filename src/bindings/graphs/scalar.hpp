// Device scalars for other parts of the bindings. With the interpreter lock.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "graphs/device_scalar.hpp"

namespace gpuprof::bindings {

// Null for a closed scalar, and for any other object.
std::shared_ptr<graphs::DeviceScalar> device_scalar(pybind11::handle object);

}  // namespace gpuprof::bindings
