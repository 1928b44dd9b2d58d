#include "bindings/python/queueing.hpp"

#include <atomic>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "bindings/python/switches.hpp"
#include "driver/cuda_call_thread.hpp"
#include "timing/device.hpp"

namespace gpuprof::bindings::queueing {

namespace {

using driver::HostNanoseconds;
using driver::monotonic_now;

constexpr HostNanoseconds kKeepLock = 200'000;  // at most
constexpr HostNanoseconds kLate = 500'000;      // longer than a call takes on another thread
constexpr HostNanoseconds kTimes = 200;         // so that letting go to see costs half a percent

std::atomic<HostNanoseconds> keep_until{0};

// A clock that is cheaper than the host's where that is easy, and too fast rather than too slow.
std::int64_t ticks() noexcept {
#if defined(__x86_64__)
  return static_cast<std::int64_t>(__rdtsc());
#else
  return monotonic_now();
#endif
}

}  // namespace

bool keeps_lock() noexcept {
  HostNanoseconds until = keep_until.load(std::memory_order_relaxed);
  if (until == 0) return false;
  if (monotonic_now() < until) return true;
  keep_until.compare_exchange_strong(until, 0, std::memory_order_relaxed);
  return false;
}

bool call_elsewhere(const QueuePlace& place, void (*call)(void*) noexcept, void* data) {
  if (timing::device::belongs_to_thread(place.stream, place.clock)) return false;
  driver::CallElsewhere elsewhere(call, data);
  if (!elsewhere.begun()) return false;
  if (!elsewhere.done(monotonic_now() + kKeepLock)) {
    without_gil([&] { elsewhere.wait(); });
  }
  return true;
}

void take_back(PyThreadState* saved) {
  const std::int64_t begin = ticks();
  PyEval_RestoreThread(saved);
  const std::int64_t late = ticks() - begin;
  if (late < kLate || switches.release_gil) return;
  keep_until.store(monotonic_now() + kTimes * late, std::memory_order_relaxed);
}

}  // namespace gpuprof::bindings::queueing
