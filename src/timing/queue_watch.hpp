// Finds out, for next to nothing, that queueing something on a stream has begun to wait.
//
// A stream's queue has about a thousand entries, and a call that finds it full waits in the driver.
// Two looks at the host's clock would make up a tenth of a graph launch, so only every eighth call
// is timed, and all of them while some stream is slow. The counter that x86 has takes 8 to 16 ns,
// but nobody says how fast it counts: at 1 to 5 GHz. It is taken for 2 GHz, which is right within a
// factor of 2.5 and good enough to tell a call that waits. Elsewhere it is the host's clock. For
// the stack of one function.
#pragma once

#include <cstdint>

#include "timing/clock.hpp"
#include "timing/device.hpp"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace gpuprof::timing {

class QueueWatch {
 public:
  // Before the `call`-th call of its kind.
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
