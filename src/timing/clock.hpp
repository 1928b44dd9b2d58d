// The host's clock: monotonic nanoseconds.
//
// Never the wall clock, which steps. Any thread. The origin is arbitrary but one for the process,
// so that spans never come out negative.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace gpuprof::timing {

using HostNanoseconds = std::int64_t;
using HostClock = HostNanoseconds (*)() noexcept;

inline HostNanoseconds monotonic_now() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The seam through which tests put a clock of their own.
inline std::atomic<HostClock> host_clock{&monotonic_now};

inline HostNanoseconds host_now() noexcept { return host_clock.load(std::memory_order_relaxed)(); }

// A nap between two looks at something that takes as long as it takes.
inline void pause_briefly() noexcept { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

inline double milliseconds(HostNanoseconds span) noexcept {
  return static_cast<double>(span) * 1e-6;
}

}  // namespace gpuprof::timing
