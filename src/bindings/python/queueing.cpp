#include "bindings/python/queueing.hpp"

#include <atomic>

#include "bindings/python/switches.hpp"
#include "driver/cuda_call_thread.hpp"
#include "timing/device.hpp"

namespace gpuprof::bindings::queueing {

namespace {

using driver::HostNanoseconds;
using driver::monotonic_now;

constexpr HostNanoseconds kKeepLock = 200'000;  // how long the caller waits with the lock
constexpr HostNanoseconds kLate = 200'000;      // a later return makes calls go elsewhere
constexpr HostNanoseconds kTimes = 200;         // for so many times as long: one more costs 0.5 %
constexpr unsigned kLookAt = 4;                 // one return in so many: the clock takes time

std::atomic<HostNanoseconds> keep_until{0};
std::atomic<unsigned> returns{0};

}  // namespace

bool keeps_lock() noexcept {
  const HostNanoseconds until = keep_until.load(std::memory_order_relaxed);
  if (until == 0 || calls_stay.load(std::memory_order_relaxed) || listens(kNvtx)) return false;
  if (monotonic_now() < until) return true;
  keep_until.store(0, std::memory_order_relaxed);
  returns.store(kLookAt - 1, std::memory_order_relaxed);  // the next return is looked at
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
  const unsigned count = returns.load(std::memory_order_relaxed) + 1;
  returns.store(count, std::memory_order_relaxed);
  if (count % kLookAt != 0) {
    take_gil_back(saved);
    return;
  }
  const HostNanoseconds begin = monotonic_now();
  take_gil_back(saved);
  const HostNanoseconds now = monotonic_now();
  const HostNanoseconds late = now - begin;
  if (late < kLate || switches.release_gil) return;
  keep_until.store(now + kTimes * late, std::memory_order_relaxed);
}

}  // namespace gpuprof::bindings::queueing
