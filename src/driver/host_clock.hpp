// The host's clock: monotonic nanoseconds.
//
// Not the wall clock, which steps. The origin is arbitrary. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace gpuprof::driver {

using HostNanoseconds = std::int64_t;
using HostClock = HostNanoseconds (*)() noexcept;

inline HostNanoseconds monotonic_now() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Tests replace the clock here.
inline std::atomic<HostClock> host_clock{&monotonic_now};

inline HostNanoseconds host_now() noexcept { return host_clock.load(std::memory_order_relaxed)(); }

}  // namespace gpuprof::driver
