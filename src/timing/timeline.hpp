// GPU times on the host's clock, for traces.
//
// The driver tells GPU times only as distances between two events, in 32-bit floats of milliseconds
// and on a clock that drifts against the host's by about 9 us a second. So while a trace is open
// every context in use gets anchors: events that completed between two known readings of the host's
// clock. A GPU time is noted as its distance from an anchor (GpuMark) and placed once a later
// anchor exists, by interpolation between the two around it, which cancels the drift.
//
// Implemented by cuda_timeline.cpp. Any thread; throws nothing. A mark may be kept for ever, but
// can be placed for a few minutes only.
#pragma once

#include <atomic>
#include <cstdint>

#include "timing/clock.hpp"

namespace gpuprof::timing {

class EventClock;
class OwnEvent;
struct GraphEvents;

// A GPU time: `ms` milliseconds after anchor number `anchor` of the clock, or before it if
// negative. Anchors count from 1. Without a clock there is no time.
struct GpuMark {
  EventClock* clock = nullptr;
  std::uint32_t anchor = 0;
  double ms = 0.0;
};

namespace timeline {

// Above 0: spans set marks. Where they do not, this load is the only cost.
inline std::atomic<int> wanted{0};

// Counted: each want(true) is undone by one want(false). The last one forgets all anchors, so place
// all marks before.
void want(bool on) noexcept;

// Drains (device::drain), then takes an anchor on every context in use, later than all marks so
// far. Call it a few times a second, and at the begin and end of a trace. Takes about 0.5 ms for
// each context, up to 100 ms where the GPU is slow to answer; does nothing unless wanted. Breaks no
// stream capture and calls no driver that is gone. A failure becomes one warning and ends the
// anchors of this context until they are wanted anew.
void refresh() noexcept;

enum class Placement : std::uint8_t {
  kPlaced,
  kNotYet,  // no later anchor yet: ask again after the next refresh()
  kLost,    // never: the anchor is forgotten, or no later one can come
};

// The true time is within `at` +- `error`: half the time between the host's readings around the
// anchors, plus what interpolation and the rounding of `ms` add.
struct HostMoment {
  HostNanoseconds at = 0;
  HostNanoseconds error = 0;
};

// The host time of `mark`. Only kPlaced writes `moment`. Marks of one clock keep their order. Place
// the end of a long span as a mark of its own: the start's with the span's milliseconds added.
// Calls no driver.
Placement place(const GpuMark& mark, HostMoment& moment) noexcept;

}  // namespace timeline
}  // namespace gpuprof::timing
