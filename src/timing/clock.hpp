// Time as timing/ uses it: the host's clock, a nap, milliseconds.
#pragma once

#include <chrono>
#include <thread>

#include "driver/host_clock.hpp"

namespace gpuprof::timing {

using driver::host_clock;
using driver::host_now;
using driver::HostClock;
using driver::HostNanoseconds;
using driver::monotonic_now;

// A nap between two looks at something that takes as long as it takes.
inline void pause_briefly() noexcept { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

inline double milliseconds(HostNanoseconds span) noexcept {
  return static_cast<double>(span) * 1e-6;
}

}  // namespace gpuprof::timing
