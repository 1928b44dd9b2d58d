/// @file
/// Which clock measures.
#pragma once

#include <cstdint>

#include "gpuprof/version.hpp"

GPUPROF_BEGIN_NAMESPACE

/// The clock of a scope or a timer.
enum class Clock : std::uint8_t {
  /// CUDA where this process uses it on this thread, else the host's clock. Initialises nothing.
  kAuto,
  /// The GPU's, from events in the stream.
  kCuda,
  /// The host's monotonic clock.
  kCpu,
};

GPUPROF_END_NAMESPACE
