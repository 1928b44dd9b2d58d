// What closed graphs still need, until their last replay is over; and graphs that could not be
// closed yet.
//
// The launches of one executable graph run one after the other on whatever streams, so that one
// event after the last of them tells. A user object of the driver would tell too, without anybody
// asking, but it makes each launch dearer by 2 us on an H200, and the next one wait.
#pragma once

#include <memory>

#include "graphs/captured_graph.hpp"
#include "graphs/cuda_launch_event.hpp"

namespace gpuprof::graphs::afterlife {

struct Entry {
  Payload payload;
  std::shared_ptr<LaunchEvent> over;
  bool lost_track;      // the event does not tell: kept until the context is gone
  bool never_launched;  // nothing to wait for
};

// Takes the entry over and looks at once whether it can go. Never throws; for lack of memory the
// payload is kept for good.
void add(Entry entry) noexcept;

}  // namespace gpuprof::graphs::afterlife
