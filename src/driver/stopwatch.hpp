// How long a call took, about, for next to nothing.
//
// The host's clock costs 24 ns a look, which two looks make a tenth of a graph launch. The counter
// that x86 has costs 8 ns, but nobody says how fast it counts: at 1 to 5 GHz. about() takes it for
// 2 GHz, which is right within a factor of 2.5 and good enough to tell a call that waits from one
// that does not. Elsewhere it is the host's clock. For the stack of one function.
#pragma once

#include "driver/host_clock.hpp"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace gpuprof::driver {

class Stopwatch {
 public:
  // Nanoseconds since it was made.
  [[nodiscard]] HostNanoseconds about() const noexcept { return (now() - begun_) / kTicks; }

 private:
#if defined(__x86_64__)
  static constexpr HostNanoseconds kTicks = 2;  // a nanosecond
  static HostNanoseconds now() noexcept { return static_cast<HostNanoseconds>(__rdtsc()); }
#else
  static constexpr HostNanoseconds kTicks = 1;
  static HostNanoseconds now() noexcept { return monotonic_now(); }
#endif

  const HostNanoseconds begun_ = now();
};

}  // namespace gpuprof::driver
