/// @file
/// The GPUs, and what an empty interval reads on them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gpuprof/version.hpp"

GPUPROF_BEGIN_NAMESPACE

/// Whether there is a usable driver and device. Initialises CUDA.
[[nodiscard]] bool cuda_available() noexcept;

/// A GPU.
struct Device {
  int index = 0;
  std::string name;
  std::size_t total_memory = 0;  ///< bytes
  int major = 0;                 ///< of the compute capability
  int minor = 0;
  int multiprocessors = 0;
};

/// The GPUs that the driver shows. Initialises CUDA; empty without a driver.
[[nodiscard]] std::vector<Device> devices();

/// What two events with nothing between them read, in nanoseconds.
struct Calibration {
  int device = 0;
  double tick_ns = 0.0;    ///< the step of all readings
  double idle_ns = 0.0;    ///< the median on an idle stream
  double queued_ns = 0.0;  ///< the same behind work that waits; NaN where that cannot be measured
  int pairs = 0;           ///< how many were read for each
};

/// Measures it. Waits for the GPU. @throws Error without a usable driver and device.
[[nodiscard]] Calibration calibrate(int device = 0);

GPUPROF_END_NAMESPACE
