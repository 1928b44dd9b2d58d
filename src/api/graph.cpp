#include "gpuprof/graph.hpp"

#include <algorithm>

#include "api/graph_state.hpp"
#include "api/warnings.hpp"
#include "driver/error.hpp"
#include "graphs/released_list.hpp"
#include "ranges/sample_events.hpp"
#include "text/graph_nodes.hpp"
#include "text/graph_text.hpp"
#include "timing/clock.hpp"
#include "timing/scope.hpp"
#include "timing/thread_nesting.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::api {
namespace {

struct Kept {
  std::vector<std::shared_ptr<const void>> objects;
  Kept* next = nullptr;
};

graphs::ReleasedList<Kept> released_objects;

void release_objects(void* bundle) { released_objects.push(static_cast<Kept*>(bundle)); }

}  // namespace

graphs::Payload keep_objects(std::vector<std::shared_ptr<const void>> objects) {
  if (objects.empty()) return {};
  auto kept = std::make_unique<Kept>();
  kept->objects = std::move(objects);
  return {kept.release(), {&release_objects}};
}

void drain_kept_objects() noexcept {
  graphs::release_finished();
  released_objects.drain([](Kept& bundle) {
    for (std::shared_ptr<const void>& object : bundle.objects) object.reset();
  });
}

}  // namespace gpuprof::api

GPUPROF_BEGIN_NAMESPACE
namespace {

std::vector<SpanTiming> rows_of(const std::vector<graphs::SpanTime>& times) {
  std::vector<SpanTiming> rows;
  std::vector<const timing::Path*> paths;  // of the rows; null for spans without a name
  for (const graphs::SpanTime& time : times) {
    const timing::Path* path = time.named ? time.path : nullptr;
    const auto found = std::find(paths.begin(), paths.end(), path);
    const auto index = static_cast<std::size_t>(found - paths.begin());
    if (found == paths.end()) {
      paths.push_back(path);
      SpanTiming row;
      row.names =
          path != nullptr ? graph_text::names_of(*path) : std::vector<std::string>{"(unnamed)"};
      row.path = path != nullptr ? path->text : row.names[0];
      rows.push_back(std::move(row));
    }
    rows[index].values.push_back(time.ms);
  }
  return rows;
}

}  // namespace

KeptObjects Needs::all() const {
  KeptObjects objects_and_pool = objects;
  objects_and_pool.insert(objects_and_pool.end(), scalars.begin(), scalars.end());
  if (pool) objects_and_pool.push_back(pool);
  return objects_and_pool;
}

CapturedGraph::State::State(graphs::CapturedParts parts, std::uintptr_t of_stream,
                            GraphTimers timers, std::string graph_name, Needs&& its_needs)
    : name(std::move(graph_name)),
      stream(of_stream),
      graph(std::move(parts), /*borrowed=*/nullptr, of_stream, /*ordinal=*/0, timers),
      needs(std::move(its_needs)),
      path(name.empty() ? "graph" : name) {
  graph.retain(api::keep_objects(needs.all()));
  graph.read_scalars_of(stream);
  graph.read_scalars(needs.scalars);
  if (needs.pool) {
    graph.read_scalars(needs.pool->scalars());
    seen_clears = needs.pool->clears.load(std::memory_order_acquire);
  }
}

void CapturedGraph::State::launch(std::uintptr_t on) {
  timing::SampleRef replay;
  bool cleared = false;
  const bool collects = graph.collects() && timing::scope::enabled.load(std::memory_order_relaxed);
  const bool is_traced = trace::is_recording();
  if (collects || is_traced) replay = timing::SampleRef(timing::make_sample());
  {
    const std::lock_guard lock(mutex);
    if (needs.pool) {
      const std::uint64_t clears = needs.pool->clears.load(std::memory_order_acquire);
      cleared = std::exchange(seen_clears, clears) != clears;
    }
    if (replay) {
      const auto place = timing::ThreadNesting::here();
      replay->path = &path.below(*place.path);
      replay->depth = place.depth;
    }
  }
  if (cleared) {
    driver::warn("gpuprof: the graph" + (name.empty() ? "" : " " + graph_text::quoted(name)) +
                 " is launched after the buffers of its pool were dropped with clear_buffers(): if "
                 "it used one of them, it now reads and writes memory that may be somebody else's");
  }
  if (is_traced) replay->thread = trace::thread_id();
  graph.launch({on, /*ordinal=*/0, replay.get(), /*io=*/nullptr});
  if (is_traced) ranges::trace_host_span(*replay.get(), trace::kUnknownDepth);
  api::drain_kept_objects();
  api::emit_pending_warnings();
}

CapturedGraph::CapturedGraph(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}

CapturedGraph::CapturedGraph(CapturedGraph&&) noexcept = default;

CapturedGraph& CapturedGraph::operator=(CapturedGraph&& other) noexcept {
  if (this != &other) {
    close();
    state_ = std::move(other.state_);
  }
  return *this;
}

CapturedGraph::~CapturedGraph() { close(); }

CapturedGraph::State& CapturedGraph::open() const {
  if (!state_) driver::refuse("this graph is closed; capture a new one");
  return *state_;
}

void CapturedGraph::launch(Stream stream) { open().launch(stream.handle()); }
void CapturedGraph::launch() { open().launch(open().stream); }
void CapturedGraph::upload(Stream stream) { open().graph.upload(stream.handle()); }
void CapturedGraph::upload() { open().graph.upload(open().stream); }
bool CapturedGraph::is_uploaded() const { return open().graph.uploaded(); }
std::uint64_t CapturedGraph::num_replays() const { return open().graph.replays(); }
const std::string& CapturedGraph::name() const { return open().name; }
int CapturedGraph::device() const { return open().graph.device(); }

std::optional<CapturePool> CapturedGraph::pool() const {
  State& state = open();
  const std::lock_guard lock(state.mutex);
  if (!state.needs.pool) return std::nullopt;
  return detail::PoolAccess::of(state.needs.pool);
}

std::vector<GraphNode> CapturedGraph::nodes() const {
  return graph_text::public_nodes(open().graph.nodes());
}
std::size_t CapturedGraph::num_nodes() const { return open().graph.node_count(); }

std::vector<std::pair<std::size_t, std::size_t>> CapturedGraph::edges() const {
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (const GraphNode& node : nodes()) {
    for (const std::size_t after : node.dependents) pairs.emplace_back(node.index, after);
  }
  return pairs;
}

std::vector<std::string> CapturedGraph::kernel_names() const {
  return gpuprof::kernel_names(nodes());
}

std::string CapturedGraph::to_dot() const {
  return gpuprof::to_dot(nodes(), name().empty() ? "graph" : name());
}

void CapturedGraph::update(CapturedGraph& other) {
  State& state = open();
  State& source = other.open();
  if (&state == &source) return;
  Needs needs;
  std::uint64_t seen_clears = 0;
  {
    const std::lock_guard lock(source.mutex);
    needs = source.needs;
    seen_clears = source.seen_clears;
  }
  graphs::UpdateRefusal refusal;
  if (!state.graph.update(source.graph, api::keep_objects(needs.all()), refusal)) {
    api::drain_kept_objects();
    throw GraphUpdateError(graph_text::update_reason(refusal.result, nodes(), refusal.node,
                                                     other.nodes(), refusal.node_of_other));
  }
  {
    const std::lock_guard lock(state.mutex);
    std::swap(state.needs, needs);
    state.seen_clears = seen_clears;
  }
  needs = {};
  api::drain_kept_objects();
}

GraphMemory CapturedGraph::memory() const { return open().graph.memory(); }

GraphTimings CapturedGraph::timings(bool wait) const {
  State& state = open();
  std::vector<graphs::SpanTime> times;
  timing::poll_until(wait ? timing::kNoDeadline : 0, [&] {
    times = state.graph.times();
    return std::all_of(times.begin(), times.end(), [](const auto& t) { return t.ms.has_value(); });
  });
  return GraphTimings(rows_of(times));
}

CUgraph_st* CapturedGraph::raw_graph() const {
  return static_cast<CUgraph_st*>(open().graph.graph());
}

CUgraphExec_st* CapturedGraph::raw_exec() const {
  return static_cast<CUgraphExec_st*>(open().graph.exec());
}

void CapturedGraph::close() noexcept {
  if (!state_) return;
  state_->graph.close();
  Needs dropped;  // without the lock: a deleter may do anything
  {
    const std::lock_guard lock(state_->mutex);
    std::swap(dropped, state_->needs);
  }
  dropped = {};
  api::drain_kept_objects();
}

bool CapturedGraph::closed() const noexcept { return !state_ || state_->graph.closed(); }

GPUPROF_END_NAMESPACE
