// Time as timing/ uses it: the host's clock, pauses while polling, milliseconds; and a spin lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include "driver/host_clock.hpp"

namespace gpuprof::timing {

using driver::host_clock;
using driver::host_now;
using driver::HostClock;
using driver::HostNanoseconds;
using driver::monotonic_now;

inline constexpr HostNanoseconds kNoDeadline = std::numeric_limits<HostNanoseconds>::max();

// A short sleep while polling for something without a deadline.
inline void pause_briefly() noexcept { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

// Calls `done()` until it returns true, or `until` on monotonic_now(): without pauses for 50
// microseconds, then with sleeps that grow to 1 ms. Returns whether it was done.
template <typename Done>
bool poll_until(HostNanoseconds until, Done&& done) {
  constexpr HostNanoseconds kSpin = 50'000;
  constexpr HostNanoseconds kLongestSleep = 1'000'000;
  const HostNanoseconds begun = monotonic_now();
  HostNanoseconds pause = 20'000;
  while (!done()) {
    const HostNanoseconds now = monotonic_now();
    if (now >= until) return false;
    if (now - begun < kSpin) continue;
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(pause, until - now)));
    pause = std::min(pause * 2, kLongestSleep);
  }
  return true;
}

inline double milliseconds(HostNanoseconds span) noexcept {
  return static_cast<double>(span) * 1e-6;
}

// A lock for work that is short or rarely contended: waiting threads yield. For std::lock_guard and
// std::unique_lock.
class SpinFlag {
 public:
  void lock() noexcept {
    while (!try_lock()) std::this_thread::yield();
  }
  bool try_lock() noexcept { return !flag_.test_and_set(std::memory_order_acquire); }
  void unlock() noexcept { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag flag_ = ATOMIC_FLAG_INIT;
};

}  // namespace gpuprof::timing
