// A pair of events that are nodes of a graph.
//
// A launch of a graph whose event was destroyed may crash, so the pair has several owners: the
// sample that reads it, and from the start of the span on, whether its end is ever recorded or not,
// the graph that is being captured. The last of them destroys it, on any thread; not in a forked
// child, and not when the context is lost.
#pragma once

#include <cstdint>

#include "timing/cuda_event_clock.hpp"

namespace gpuprof::timing {

class GraphEvents {
 public:
  // Makes the pair. `capture` is the driver's number of the capture. Throws driver::Error.
  GraphEvents(EventClock& clock, unsigned long long capture);
  GraphEvents(const GraphEvents&) = delete;
  GraphEvents& operator=(const GraphEvents&) = delete;
  ~GraphEvents();

  [[nodiscard]] const EventPair& pair() const noexcept { return pair_; }
  [[nodiscard]] unsigned long long capture() const noexcept { return capture_; }

 private:
  EventClock& clock_;
  const EventPair pair_;
  const unsigned long long capture_;
  const std::uint32_t generation_;
};

}  // namespace gpuprof::timing
