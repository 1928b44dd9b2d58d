// Streams whose queue is full: a caller may let other threads run before it queues more there.
//
// A stream's queue has about a thousand entries, and a call that finds it full waits in the driver.
// A stream is slow if queueing something on it took more than 50 microseconds the last time. Any
// thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "timing/clock.hpp"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace gpuprof::timing {
namespace device {

// Whether any stream is slow, so that is_slow() is one load where none is.
inline std::atomic<bool> any_slow{false};
bool is_one_of_the_slow(std::uintptr_t stream) noexcept;

inline bool is_slow(std::uintptr_t stream) noexcept {
  return any_slow.load(std::memory_order_relaxed) && is_one_of_the_slow(stream);
}

// Notes how long queueing something on the stream took.
void note_queue_time(std::uintptr_t stream, HostNanoseconds took) noexcept;

}  // namespace device

// Times a call that queues something, for note_queue_time(). For the stack of one function.
//
// Reading the host's clock twice would make up a tenth of a graph launch. So on x86 it reads the
// time-stamp counter (8 to 16 ns for both). Its rate, 1 to 5 GHz, is taken for 2 GHz: good enough
// to recognise a call that waits.
class QueueWatch {
 public:
  // Times the call.
  QueueWatch() noexcept : timed_(true), begun_(now()) {}
  // Times the `call`-th call of its kind if it is an eighth one, or while some stream is slow.
  explicit QueueWatch(std::uint64_t call) noexcept
      : timed_(call % kEvery == 0 || device::any_slow.load(std::memory_order_relaxed)),
        begun_(timed_ ? now() : 0) {}

  // After it.
  void note(std::uintptr_t stream) const noexcept {
    if (timed_) device::note_queue_time(stream, (now() - begun_) / kTicks);
  }

 private:
  static constexpr std::uint64_t kEvery = 8;
#if defined(__x86_64__)
  static constexpr HostNanoseconds kTicks = 2;  // a nanosecond
  static HostNanoseconds now() noexcept { return static_cast<HostNanoseconds>(__rdtsc()); }
#else
  static constexpr HostNanoseconds kTicks = 1;
  static HostNanoseconds now() noexcept { return monotonic_now(); }
#endif

  const bool timed_;
  const HostNanoseconds begun_;
};

}  // namespace gpuprof::timing
