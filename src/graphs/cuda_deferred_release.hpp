// The event after a launch, and what closed graphs keep until that event is reached.
//
// Launches of one executable graph run one after the other on whatever streams, so the event after
// the last one says that all are done. A CUDA user object would also signal completion, but adds
// 2 us to every launch (H200) and serialises it with the next.
#pragma once

#include <cstdint>
#include <memory>

#include "graphs/captured_graph.hpp"
#include "timing/cuda_event_clock.hpp"

namespace gpuprof::graphs {

// An event without timing. Shared by the graph, by its LaunchOrder and by deferred releases. Holds
// its clock, which destroys the event later. Construction throws driver::Error; the destructor
// never throws nor calls the driver, does nothing in a forked child, and may come before the GPU
// reaches the event.
struct LaunchEvent {
  explicit LaunchEvent(timing::EventClock& of);
  LaunchEvent(const LaunchEvent&) = delete;
  LaunchEvent& operator=(const LaunchEvent&) = delete;
  ~LaunchEvent();

  const CUevent event;
  timing::EventClock& clock;
  const std::uint32_t generation;
};

namespace deferred_release {

struct Entry {
  Payload payload;
  std::shared_ptr<LaunchEvent> completed;
  bool record_failed;   // the event says nothing: kept until the context is gone
  bool never_launched;  // nothing to wait for
  std::unique_ptr<CapturedGraph> unclosed;  // to be closed and destroyed first
  std::uint32_t generation = driver::fork_generation();
};

// Takes ownership of the entry, and releases it at once where it is complete. Never throws; leaks
// the payload where there is no memory for the entry.
void add(Entry entry) noexcept;

}  // namespace deferred_release
}  // namespace gpuprof::graphs
