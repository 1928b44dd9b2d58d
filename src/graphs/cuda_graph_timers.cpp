#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "driver/cuda_events.hpp"
#include "graphs/cuda_handles.hpp"
#include "graphs/graph_timers.hpp"
#include "timing/cuda_event_clock.hpp"
#include "timing/device.hpp"
#include "timing/statistics.hpp"
#include "timing/timeline.hpp"
#include "timing/work.hpp"

namespace gpuprof::graphs {

using driver::check;
using driver::Error;
using driver::ErrorKind;
using timing::Sample;
using timing::SampleRef;
using timing::SampleStatus;

namespace {

SampleRef sample_of(const Sample& captured, timing::EventClock& clock) {
  SampleRef sample(timing::make_sample());
  sample->kind = timing::SpanKind::kInsideReplay;
  sample->clock = timing::kCudaClock;
  sample->counted = captured.counted;
  sample->body_raised = captured.body_raised;
  sample->path = captured.path;
  if (captured.details != nullptr) timing::copy_details(*captured.details, *sample.get());
  sample->depth = captured.depth;
  sample->events = &clock;
  sample->epoch = timing::statistics::epoch();
  sample->generation = driver::fork_generation();
  return sample;
}

}  // namespace

GraphSpans::GraphSpans(std::vector<SampleRef> captured, GraphTimers keeping, void* graph,
                       const EventsInGraph& events)
    : keeping_(keeping) {
  // Scopes are delivered in the order in which they end; times are listed as they began.
  std::vector<std::pair<timing::HostNanoseconds, std::size_t>> order;
  order.reserve(captured.size());
  for (const SampleRef& sample : captured) order.emplace_back(sample->host_begin, order.size());
  std::sort(order.begin(), order.end());
  spans_.resize(captured.size());
  as_ended_.resize(captured.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t ended = order[i].second;
    spans_[i].captured = std::move(captured[ended]);
    as_ended_[ended] = i;
  }
  if (collects() && !spans_.empty()) find_nodes(graph, events);
}

void GraphSpans::find_nodes(void* graph, const EventsInGraph& events) {
  const driver::Table& table = driver::ready();
  std::unordered_map<void*, void*> node_of;  // by event
  std::unordered_set<void*> foreign;
  for (CUgraphNode node : nodes_of(table, as_graph(graph))) {
    int type = 0;
    check(type_of(table, node, type), "cuGraphNodeGetType");
    if (type != CU_GRAPH_NODE_TYPE_EVENT_RECORD) continue;
    CUevent event = nullptr;
    check(table.cuGraphEventRecordNodeGetEvent(node, &event), "cuGraphEventRecordNodeGetEvent");
    node_of[event] = node;
    foreign.insert(event);
  }
  for (const auto& event : events) foreign.erase(event->handle());
  if (!foreign.empty()) {
    refuse("timers=\"collect\" cannot be had here: the graph records " +
           std::to_string(foreign.size()) +
           " events that are not gpuprof's, and the driver crashes at a launch after one "
           "of them was destroyed; use timers=\"last\"");
  }
  for (Span& span : spans_) {
    const auto start = node_of.find(span.captured->start);
    const auto end = node_of.find(span.captured->end);
    if (start == node_of.end() || end == node_of.end()) continue;  // of another graph
    span.start_node = start->second;
    span.end_node = end->second;
  }
}

void GraphSpans::point(const driver::EventAccess& access, void* exec, Span& span, void* start,
                       void* end) {
  span.points_at_pool = true;  // at least one of them may
  const auto point = [&](void* node, void* event) {
    check(access.point_node(as_exec(exec), as_node(node), static_cast<CUevent>(event)),
          "cuGraphExecEventRecordNodeSetEvent");
  };
  point(span.start_node, start);
  point(span.end_node, end);
}

void GraphSpans::prepare(const driver::EventAccess& access, void* exec, timing::EventClock& clock) {
  try {
    for (Span& span : spans_) {
      if (span.start_node == nullptr) continue;
      SampleRef sample = sample_of(*span.captured.get(), clock);
      timing::EventPair pair;
      if (clock.take(pair)) {
        sample->start = pair.start;
        sample->end = pair.end;
        span.next = std::move(sample);
        point(access, exec, span, pair.start, pair.end);
        continue;
      }
      sample->finish(SampleStatus::kDropped);
      span.next = std::move(sample);
      // The events that the nodes point at may be in use by another span.
      if (span.points_at_pool) {
        point(access, exec, span, span.captured->start, span.captured->end);
        span.points_at_pool = false;
      }
    }
  } catch (...) {
    cancel();
    throw;
  }
}

void GraphSpans::disarm(const driver::EventAccess& access, void* exec) {
  for (Span& span : spans_) {
    if (!span.points_at_pool) continue;
    point(access, exec, span, span.captured->start, span.captured->end);
    span.points_at_pool = false;
  }
}

// The samples give their events back.
void GraphSpans::cancel() noexcept {
  for (Span& span : spans_) span.next = SampleRef();
}

void GraphSpans::launched(const Sample& launch) noexcept {
  for (const std::size_t index : as_ended_) {  // scopes are queued as they end
    Span& span = spans_[index];
    if (!span.next) continue;
    Sample& sample = *span.next.get();
    sample.stream = launch.stream;
    sample.stream_id = launch.stream_id;
    sample.host_begin = sample.host_end = launch.host_begin;
    sample.thread = launch.thread;
    sample.depth = static_cast<std::uint16_t>(sample.depth + launch.depth + 1);
    sample.gpu_begin.anchor = launch.gpu_begin.anchor;
    if (sample.load_status() == SampleStatus::kDropped) {
      driver::warn_once(driver::Warning::kDropped,
                        "gpuprof: 4096 timed spans wait to be read, so new ones are dropped and "
                        "counted; call stats() or flush() of gpuprof more often");
      timing::deliver(&sample);
    } else {
      sample.finish(SampleStatus::kPending);
      timing::add_reference(&sample);
      try {
        sample.events->push(&sample);
      } catch (...) {  // out of memory: the span is lost, its events are not
        timing::drop_reference(&sample);
        sample.finish(SampleStatus::kDropped);
      }
    }
    span.last = std::move(span.next);
  }
}

std::vector<SpanTime> GraphSpans::read() const {
  std::vector<SpanTime> times;
  times.reserve(spans_.size());
  for (const Span& span : spans_) {
    SpanTime time;
    time.path = span.captured->path;
    time.named = span.captured->counted;
    if (keeping_ == GraphTimers::kCollect) {
      if (!span.last) {
        throw Error(ErrorKind::kNotReplayed,
                    "the graph has not been launched yet, so its spans have no times");
      }
      Sample& last = *span.last.get();
      if (timing::device::wait(last, 0)) {
        if (last.load_status() == SampleStatus::kFailed && last.error) throw *last.error;
        if (last.load_status() == SampleStatus::kDone) time.ms = last.device_ms;
        if (last.load_status() == SampleStatus::kDropped) {
          refuse(
              "the last replay's times were dropped, because too many spans waited to be "
              "read; call flush() of gpuprof more often");
        }
      }
    } else if (double ms = 0.0; timing::device::read_captured(*span.captured.get(), ms)) {
      time.ms = ms;
    }
    times.push_back(time);
  }
  return times;
}

void GraphSpans::take_over(const GraphSpans& other) {
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    spans_[i].captured = other.spans_[i].captured;
    spans_[i].points_at_pool = false;
  }
}

}  // namespace gpuprof::graphs
