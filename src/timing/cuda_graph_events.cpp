#include "timing/cuda_graph_events.hpp"

#include "driver/process.hpp"

namespace gpuprof::timing {

GraphEvents::GraphEvents(EventClock& clock, unsigned long long capture)
    : clock_(clock),
      pair_(clock.make_for_graph()),
      capture_(capture),
      generation_(driver::fork_generation()) {}

GraphEvents::~GraphEvents() {
  if (generation_ == driver::fork_generation()) clock_.destroy_for_graph(pair_);
}

}  // namespace gpuprof::timing
