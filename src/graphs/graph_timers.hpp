// The timed spans inside a graph: pairs of event-record nodes, and their times.
//
// kLast: each replay overwrites the events of the capture, which are read in place. kCollect: each
// launch points the executable graph's nodes at fresh events of the context's pool, and each span
// of the launch becomes a sample, delivered to statistics and traces once the GPU has run it. Where
// the pool is empty the span is dropped and counted. Nothing waits. Belongs to one CapturedGraph,
// which serialises the calls. Errors are driver::Error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graphs/capture.hpp"
#include "timing/sample.hpp"

namespace gpuprof::driver {
class EventAccess;
}

namespace gpuprof::graphs {

// One span's last time; no milliseconds where the replay has not come that far.
struct SpanTime {
  const timing::Path* path = nullptr;
  bool named = true;
  std::optional<double> ms;
};

class GraphSpans {
 public:
  // `captured` are samples whose events are nodes of `graph`, `events` are all of gpuprof's events
  // in it. kCollect refuses a graph that records other events too: the driver crashes once one of
  // those is destroyed.
  GraphSpans(std::vector<timing::SampleRef> captured, GraphTimers keeping, void* graph,
             const EventsInGraph& events);

  [[nodiscard]] std::size_t size() const noexcept { return spans_.size(); }
  [[nodiscard]] bool collects() const noexcept { return keeping_ == GraphTimers::kCollect; }
  [[nodiscard]] GraphTimers keeping() const noexcept { return keeping_; }

  // Before a launch of `exec`, where collects(): gives each span fresh events.
  void prepare(const driver::EventAccess& access, void* exec, timing::EventClock& clock);
  // The same for a launch whose times are not collected: points the nodes back at the capture's
  // events.
  void disarm(const driver::EventAccess& access, void* exec);
  // After the launch, whose own sample is `launch`.
  void launched(const timing::Sample& launch) noexcept;
  // After a launch that failed: gives the events back.
  void cancel() noexcept;

  // The times of the last replay. kNotReplayed before the first.
  [[nodiscard]] std::vector<SpanTime> read() const;

  // For an executable graph that was updated from the graph of `other`, which has as many spans:
  // takes their names and, unless collected, their events.
  void take_over(const GraphSpans& other);

 private:
  struct Span {
    timing::SampleRef captured;
    void* start_node = nullptr;
    void* end_node = nullptr;
    bool points_at_pool = false;  // the executable graph's nodes, at events of the pool
    timing::SampleRef next;       // of the launch being prepared
    timing::SampleRef last;       // of the last launch
  };
  void find_nodes(void* graph, const EventsInGraph& events);
  static void point(const driver::EventAccess& access, void* exec, Span& span, void* start,
                    void* end);

  GraphTimers keeping_;
  std::vector<Span> spans_;            // in the order in which they began
  std::vector<std::size_t> as_ended_;  // indices of spans_, in the order in which they ended
};

}  // namespace gpuprof::graphs
