// The timed spans inside a graph: pairs of event-record nodes, and what became of their times.
//
// kLast: each replay overwrites the events of the capture, which are read in place. kCollect:
// before each launch the executable graph's nodes are pointed at fresh events out of the context's
// pool, and each span of that launch becomes a sample of its own, which the statistics and traces
// get once the GPU is through; where the pool is empty the span is dropped and counted, and nothing
// ever waits. Belongs to one CapturedGraph, which serialises the calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graphs/capture.hpp"
#include "timing/sample.hpp"

namespace gpuprof::driver {
class EventAccess;
}

namespace gpuprof::graphs {

// One span's last time. `ms` counts only where `known`.
struct SpanTime {
  const timing::Path* path = nullptr;
  bool named = true;
  bool known = false;
  double ms = 0.0;
};

class GraphSpans {
 public:
  // `captured` are samples whose events are nodes of `graph`, `events` all that gpuprof has made
  // nodes of it. Throws driver::Error, with kCollect for a graph that records events of others too:
  // the driver crashes once one of those is destroyed.
  GraphSpans(std::vector<timing::SampleRef> captured, GraphTimers keeping, void* graph,
             const EventsInGraph& events);

  [[nodiscard]] bool empty() const noexcept { return spans_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return spans_.size(); }
  [[nodiscard]] bool collects() const noexcept { return keeping_ == GraphTimers::kCollect; }
  [[nodiscard]] GraphTimers keeping() const noexcept { return keeping_; }

  // Before a launch of `exec`, where collects(): gives each span its events. Throws driver::Error.
  void prepare(const driver::EventAccess& access, void* exec, timing::EventClock& clock);
  // The same for a launch that is not to be collected: its times go nowhere.
  void rest(const driver::EventAccess& access, void* exec);
  // After it: `launch` is the sample of the launch itself.
  void launched(const timing::Sample& launch) noexcept;
  // The launch failed: takes the events back.
  void cancel() noexcept;

  // The times of the last replay; for a collected one until now. Throws driver::Error:
  // kNotReplayed before the first.
  [[nodiscard]] std::vector<SpanTime> read() const;

  // The exec was updated from another graph: its spans' names and, unless collected, its events are
  // ours now. Both must have as many.
  void take_names(const GraphSpans& other);

 private:
  struct Span {
    timing::SampleRef captured;
    void* start_node = nullptr;
    void* end_node = nullptr;
    bool points_at_pool = false;  // the executable graph's nodes do
    timing::SampleRef next;       // of the launch that is being prepared
    timing::SampleRef last;       // of the launch before
  };
  void find_nodes(void* graph, const EventsInGraph& events);
  static void point(const driver::EventAccess& access, void* exec, Span& span, void* start,
                    void* end);

  GraphTimers keeping_;
  std::vector<Span> spans_;            // as they began
  std::vector<std::size_t> as_ended_;  // indices of the same, as they ended
};

}  // namespace gpuprof::graphs
