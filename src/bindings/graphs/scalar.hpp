// What the parts of the bindings share of device scalars. With the interpreter lock.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "graphs/device_scalar.hpp"

namespace gpuprof::bindings {

// Null for a closed one, and for anything that is none.
std::shared_ptr<graphs::DeviceScalar> device_scalar(pybind11::handle object);

}  // namespace gpuprof::bindings
