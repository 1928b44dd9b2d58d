// GPU moments on the host's clock: the seam between timing and whoever draws a time line.
//
// The driver tells GPU times only as distances between two events, in 32-bit floats of milliseconds
// and on a clock that drifts against the host's by about 9 us a second. So while somebody wants it,
// every context in use gets anchors: events whose moment is known on the host's clock too, between
// two readings of it. A GPU moment is noted as its distance from an anchor (GpuMark) and is placed
// once a later anchor exists, by interpolating between the two around it, which cancels the drift.
//
// cuda_timeline.cpp implements it; a build without CUDA's headers has cuda_absent.cpp in its place.
// Everything is safe from any thread and throws nothing. An EventClock lives as long as the
// process, and so a mark may be kept; what it stands for is forgotten after a few minutes.
#pragma once

#include <atomic>
#include <cstdint>

#include "timing/clock.hpp"

namespace gpuprof::timing {

class EventClock;
class GraphEvents;

// A moment of the GPU: `ms` milliseconds after that clock's anchor number `anchor`, before it if
// negative. Anchors count from 1; a mark without a clock stands for no moment.
struct GpuMark {
  EventClock* clock = nullptr;
  std::uint32_t anchor = 0;
  double ms = 0.0;
};

namespace timeline {

// Whether somebody draws: while it is false, spans note no marks, at the cost of this one load.
inline std::atomic<bool> wanted{false};

// Counted: each want(true) is taken back by one want(false). The last one forgets all anchors, so
// what is to be placed must have been placed.
void want(bool on) noexcept;

// Reads out what the GPU has finished (device::drain), then takes an anchor on every context in
// use, which all marks made so far lie before. To be called a few times a second, and at both ends
// of a drawing. Takes about half a millisecond a context, up to 20 where the GPU is slow to answer;
// does nothing unless wanted. It breaks nobody's stream capture and calls no driver that is gone. A
// failure is one warning, and ends this context's anchors until somebody wants them anew.
void refresh() noexcept;

enum class Placement : std::uint8_t {
  kPlaced,
  kNotYet,  // no anchor after it yet: ask again after the next refresh()
  kLost,    // never: the anchor is forgotten, or none can follow any more
};

// `error` is how far the truth may be from `at`, to either side: half the time that passed between
// the host's readings around the anchors, what interpolation adds, and the rounding of `ms`.
struct HostMoment {
  HostNanoseconds at = 0;
  HostNanoseconds error = 0;
};

// Where `mark` is on the host's clock. Only kPlaced writes `moment`. Marks of one clock are placed
// in their order, whenever each is asked for. The end of a long span is placed best as a mark of
// its own: its start's with the span's milliseconds added. Calls no driver.
Placement place(const GpuMark& mark, HostMoment& moment) noexcept;

}  // namespace timeline
}  // namespace gpuprof::timing
