#include <utility>

#include "driver/cuda_scopes.hpp"
#include "graphs/captured_graph.hpp"
#include "graphs/cuda_afterlife.hpp"
#include "graphs/cuda_handles.hpp"
#include "timing/cuda_contexts.hpp"
#include "timing/cuda_event_clock.hpp"
#include "timing/device.hpp"
#include "timing/queue_watch.hpp"
#include "timing/scope.hpp"

namespace gpuprof::graphs {

using driver::check;
using driver::Error;
using driver::ErrorKind;
using driver::Table;
using timing::Sample;
using timing::contexts::as_stream;

namespace {

// A default stream is one of whichever context is current.
CUcontext to_push(std::uintptr_t stream, const timing::EventClock& clock) noexcept {
  return timing::contexts::is_default_stream(stream) ? clock.context() : nullptr;
}

bool may_call(std::uint32_t generation, timing::EventClock& clock) noexcept {
  return driver::blocked.load(std::memory_order_relaxed) == 0 &&
         generation == driver::fork_generation() && clock.check_alive();
}

std::int64_t index_of(const Table& table, CUgraph graph, CUgraphNode wanted) {
  std::size_t count = 0;
  if (wanted == nullptr || table.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) return -1;
  std::vector<CUgraphNode> nodes(count);
  if (table.cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return -1;
  for (std::size_t i = 0; i < count; ++i) {
    if (nodes[i] == wanted) return static_cast<std::int64_t>(i);
  }
  return -1;
}

}  // namespace

// A CUgraph, destroyed with its last owner unless it is lent.
struct CapturedGraph::Handle {
  Handle(void* of_graph, bool is_lent, EventsInGraph of_nodes)
      : graph(of_graph), lent(is_lent), events(std::move(of_nodes)) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    // A graph outlives its context, other than what was instantiated from it.
    if (lent || graph == nullptr || driver::blocked.load(std::memory_order_relaxed) != 0 ||
        generation != driver::fork_generation()) {
      return;
    }
    const Table& table = *driver::loaded_or_null();
    const driver::RelaxedCapture relaxed(table);
    table.cuGraphDestroy(as_graph(graph));
  }

  void* const graph;
  const bool lent;
  const EventsInGraph events;  // its nodes record them, and those of executables made of it
  const std::uint32_t generation = driver::fork_generation();
};

CapturedGraph::CapturedGraph(void* graph, bool lent, std::uintptr_t stream, int ordinal,
                             EventsInGraph events, std::vector<timing::SampleRef> spans,
                             GraphTimers keeping)
    : stream_(stream), generation_(driver::fork_generation()), spans_({}, keeping, nullptr, {}) {
  const Table& table = driver::ready();
  try {
    clock_ = timing::contexts::find(table, stream, ordinal).clock;
    device_ = clock_->ordinal();
    graph_ = std::make_shared<Handle>(graph, lent, std::move(events));
    source_ = graph_;
  } catch (...) {
    if (!graph_ && !lent && graph != nullptr) {
      const driver::RelaxedCapture relaxed(table);
      table.cuGraphDestroy(as_graph(graph));
    }
    throw;
  }
  spans_ = GraphSpans(std::move(spans), keeping, graph, graph_->events);
  clock_->hold();
}

CapturedGraph::~CapturedGraph() { close(); }

void CapturedGraph::throw_if_blocked() const {
  if (driver::blocked.load(std::memory_order_relaxed) == 0 &&
      generation_ == driver::fork_generation()) {
    return;
  }
  driver::throw_if_blocked();
  throw Error(ErrorKind::kForked,
              "this graph was made before the process was forked, and the parent's CUDA objects "
              "cannot be used here");
}

std::unique_lock<std::mutex> CapturedGraph::enter(bool wait) {
  throw_if_blocked();
  return wait ? std::unique_lock(mutex_) : std::unique_lock(mutex_, std::try_to_lock);
}

void CapturedGraph::throw_if_unusable() const {
  throw_if_blocked();
  if (closed_.load(std::memory_order_relaxed)) {
    throw Error(ErrorKind::kInvalidState, "this graph is closed; capture a new one");
  }
  if (!clock_->check_alive()) {
    throw Error(CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "cuCtxGetId",
                "the graph's context was destroyed or reset, and the graph with it");
  }
}

// With the graph's context current.
void* CapturedGraph::make_over_event() const {
  const Table& table = driver::ready();
  CUevent over = nullptr;
  const CUresult status = table.cuEventCreate(&over, CU_EVENT_DISABLE_TIMING);
  if (status != CUDA_SUCCESS) {
    const Error error = driver::error_of(status, "cuEventCreate");
    if (over != nullptr && driver::blocked.load(std::memory_order_relaxed) == 0) {
      table.cuEventDestroy(over);
    }
    throw error;
  }
  return over;
}

void CapturedGraph::retain(const Payload& payload) {
  const auto lock = enter();
  throw_if_unusable();
  const driver::CurrentContext current(driver::ready(), clock_->context());
  over_ = make_over_event();
  payload_ = payload;
}

// With the lock held, after a launch.
void CapturedGraph::note_launch(std::uintptr_t stream) noexcept {
  // Written with the lock held only, so that no atomic addition is needed.
  uploaded_.store(true, std::memory_order_relaxed);
  replays_.store(replays_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (over_ == nullptr) return;
  const Table& table = *driver::loaded_or_null();
  needed_ = true;
  lost_track_ = table.cuEventRecord(static_cast<CUevent>(over_), as_stream(stream)) != CUDA_SUCCESS;
}

void CapturedGraph::let_go_of_payload() noexcept {
  if (payload_.what == nullptr) return;
  afterlife::add({std::exchange(payload_, {}), over_, clock_, generation_, lost_track_,
                  !std::exchange(needed_, false)});
  over_ = nullptr;
  lost_track_ = false;
}

std::int64_t CapturedGraph::free_memory() const noexcept {
  std::size_t free = 0;
  std::size_t total = 0;
  const Table& table = *driver::loaded_or_null();
  return table.cuMemGetInfo(&free, &total) == CUDA_SUCCESS ? static_cast<std::int64_t>(free) : -1;
}

void CapturedGraph::instantiate() {
  const auto lock = enter();
  throw_if_unusable();
  const Table& table = driver::ready();
  const driver::CurrentContext current(table, clock_->context());
  const driver::RelaxedCapture relaxed(table);
  CUgraphExec exec = nullptr;
  const CUresult status = table.cuGraphInstantiateWithFlags(
      &exec, as_graph(graph_->graph), CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  if (status != CUDA_SUCCESS) {
    const Error error = driver::error_of(status, "cuGraphInstantiateWithFlags");
    if (exec != nullptr && driver::blocked.load(std::memory_order_relaxed) == 0) {
      table.cuGraphExecDestroy(exec);
    }
    throw error;
  }
  exec_ = exec;
  owns_exec_ = true;
}

// Asking before and after each instantiation would cost more than all else that a capture adds.
GraphMemory CapturedGraph::memory() {
  const auto lock = enter();
  if (measured_ || closed()) return memory_;
  throw_if_unusable();
  if (graph_->graph == nullptr) return memory_;
  const Table& table = driver::ready();
  const driver::CurrentContext current(table, clock_->context());
  const driver::RelaxedCapture relaxed(table);
  const std::int64_t before = free_memory();
  CUgraphExec twin = nullptr;
  const CUresult status = table.cuGraphInstantiateWithFlags(
      &twin, as_graph(graph_->graph), CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  const std::int64_t after = free_memory();
  if (twin != nullptr) table.cuGraphExecDestroy(twin);
  measured_ = true;
  // A graph that allocates may have one executable copy only (801): then it is not known.
  if (status == CUDA_ERROR_NOT_SUPPORTED) return memory_;
  check(status, "cuGraphInstantiateWithFlags");
  if (before >= 0 && after >= 0) memory_.instantiate = before - after;
  return memory_;
}

void CapturedGraph::lend_exec(void* exec) {
  const auto lock = enter();
  exec_ = exec;
  owns_exec_ = false;
}

void CapturedGraph::check_stream(const Table& table, std::uintptr_t stream) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  check(table.cuStreamIsCapturing(as_stream(stream), &status), "cuStreamIsCapturing");
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return;
  throw Error(ErrorKind::kInvalidState,
              "the stream " + std::to_string(stream) +
                  " is being captured, and a graph cannot be launched into a capture; launch it on "
                  "another stream, or after the capture. (The driver was not called: it would have "
                  "broken the capture.)");
}

// With the lock held.
void CapturedGraph::open_launch(const Table& table, std::uintptr_t stream, int ordinal,
                                Sample* replay) {
  check_stream(table, stream);
  if (spans_.collects()) {
    if (replay == nullptr) {
      spans_.rest(exec_);
    } else {
      spans_.prepare(exec_, *clock_);
    }
  }
  if (replay == nullptr) return;
  replay->kind = timing::SpanKind::kReplay;
  replay->stream = stream;
  timing::scope::open_cuda(*replay, false, ordinal);
}

// With the lock held.
void CapturedGraph::close_launch(Sample* replay, const Sample& launch) noexcept {
  if (spans_.collects()) spans_.launched(launch);
  if (replay != nullptr) timing::scope::close_cuda(*replay);
}

void CapturedGraph::fail_launch(Sample* replay) noexcept {
  spans_.cancel();
  if (replay != nullptr) timing::scope::abandon(*replay, timing::SampleStatus::kFailed);
}

bool CapturedGraph::try_launch(std::uintptr_t stream, int ordinal, Sample* replay) {
  const auto lock = enter(false);
  if (!lock.owns_lock()) return false;
  launch_locked(stream, ordinal, replay);
  return true;
}

void CapturedGraph::launch(std::uintptr_t stream, int ordinal, Sample* replay) {
  const auto lock = enter();
  launch_locked(stream, ordinal, replay);
}

void CapturedGraph::launch_locked(std::uintptr_t stream, int ordinal, Sample* replay) {
  throw_if_unusable();
  const Table& table = *driver::loaded_or_null();
  const driver::CurrentContext current(table, to_push(stream, *clock_));
  open_launch(table, stream, ordinal, replay);
  const timing::QueueWatch watch(replays_.load(std::memory_order_relaxed));
  const CUresult status = table.cuGraphLaunch(as_exec(exec_), as_stream(stream));
  watch.note(stream);
  if (status != CUDA_SUCCESS) {
    const Error error = driver::error_of(status, "cuGraphLaunch");
    fail_launch(replay);
    throw error;
  }
  note_launch(stream);
  if (replay != nullptr) close_launch(replay, *replay);
}

void CapturedGraph::before_launch(std::uintptr_t stream, int ordinal, Sample* replay) {
  const auto lock = enter();
  throw_if_unusable();
  const Table& table = driver::ready();
  const driver::CurrentContext current(table, to_push(stream, *clock_));
  open_launch(table, stream, ordinal, replay);
  ++launches_of_framework_;
}

void CapturedGraph::after_launch(std::uintptr_t stream, Sample* replay, bool launched) {
  const std::lock_guard lock(mutex_);
  --launches_of_framework_;
  try {
    if (launched) {
      const driver::CurrentContext current(driver::ready(), to_push(stream, *clock_));
      note_launch(stream);
      if (replay != nullptr) close_launch(replay, *replay);
    } else {
      fail_launch(replay);
    }
  } catch (...) {
    if (closed() && launches_of_framework_ == 0) take_apart();
    throw;
  }
  if (closed() && launches_of_framework_ == 0) take_apart();
}

void CapturedGraph::upload(std::uintptr_t stream, int ordinal) {
  const auto lock = enter();
  throw_if_unusable();
  if (uploaded_.load(std::memory_order_relaxed)) return;
  const Table& table = driver::ready();
  const driver::CurrentContext current(table, clock_->context());
  static_cast<void>(ordinal);
  check_stream(table, stream);
  const std::int64_t before = free_memory();
  check(table.cuGraphUpload(as_exec(exec_), as_stream(stream)), "cuGraphUpload");
  uploaded_.store(true, std::memory_order_relaxed);
  const std::int64_t after = free_memory();
  if (before >= 0 && after >= 0) memory_.upload = before - after;
}

bool CapturedGraph::update(CapturedGraph& other, const Payload& payload, UpdateRefusal& refusal) {
  throw_if_blocked();
  const std::scoped_lock lock(mutex_, other.mutex_);
  throw_if_unusable();
  other.throw_if_unusable();
  if (launches_of_framework_ != 0) {
    throw Error(ErrorKind::kInvalidState,
                "this graph is being launched; update it when the launch has returned");
  }
  if (graph_->graph == nullptr || other.graph_->graph == nullptr) {
    throw Error(ErrorKind::kInvalidState,
                "an update needs both graphs, and one of these is known by its executable copy "
                "alone");
  }
  if (spans_.size() != other.spans_.size()) {
    throw Error(ErrorKind::kInvalidState,
                "the graphs have " + std::to_string(spans_.size()) + " and " +
                    std::to_string(other.spans_.size()) +
                    " timed spans, and an update cannot change their number; capture both with the "
                    "same timers");
  }
  const Table& table = driver::ready();
  const driver::CurrentContext current(table, clock_->context());
  const driver::RelaxedCapture relaxed(table);
  void* over = payload.what != nullptr ? make_over_event() : nullptr;
  CUgraphExecUpdateResultInfo info{};
  const CUresult status =
      table.cuGraphExecUpdate(as_exec(exec_), as_graph(other.graph_->graph), &info);
  if (status == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) {
    refusal.result = static_cast<int>(info.result != 0 ? info.result : CU_GRAPH_EXEC_UPDATE_ERROR);
    // The driver names the nodes of the executable graph by those of its source.
    refusal.node = index_of(table, as_graph(source_->graph), info.errorNode);
    refusal.node_of_other = index_of(table, as_graph(other.graph_->graph), info.errorNode);
    if (refusal.node_of_other < 0) {
      refusal.node_of_other = index_of(table, as_graph(other.graph_->graph), info.errorFromNode);
    }
  }
  if (status != CUDA_SUCCESS) {
    // Also takes the log's lines of a refusal, which are not the next error's.
    const Error error = driver::error_of(status, "cuGraphExecUpdate");
    if (over != nullptr && driver::blocked.load(std::memory_order_relaxed) == 0) {
      table.cuEventDestroy(static_cast<CUevent>(over));
    }
    if (status == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) return false;
    throw error;
  }
  let_go_of_payload();
  payload_ = payload;
  over_ = over;
  graph_ = other.graph_;
  spans_.take_names(other.spans_);
  uploaded_.store(false, std::memory_order_relaxed);
  return true;
}

std::vector<SpanTime> CapturedGraph::times() {
  const auto lock = enter();
  throw_if_unusable();
  return spans_.read();
}

void* CapturedGraph::graph() {
  const auto lock = enter();
  throw_if_unusable();
  return graph_->graph;
}

void* CapturedGraph::exec() {
  const auto lock = enter();
  throw_if_unusable();
  return exec_;
}

std::size_t CapturedGraph::node_count() {
  const auto lock = enter();
  throw_if_unusable();
  std::size_t count = 0;
  check(driver::ready().cuGraphGetNodes(as_graph(graph_->graph), nullptr, &count),
        "cuGraphGetNodes");
  return count;
}

void CapturedGraph::close() noexcept {
  if (generation_ != driver::fork_generation()) {
    closed_.store(true, std::memory_order_release);
    return;
  }
  const std::lock_guard lock(mutex_);
  if (closed_.exchange(true, std::memory_order_acq_rel)) return;
  if (launches_of_framework_ == 0) take_apart();
}

// With the lock held, once.
void CapturedGraph::take_apart() noexcept {
  if (exec_ != nullptr && owns_exec_ && may_call(generation_, *clock_)) {
    const Table& table = *driver::loaded_or_null();
    const driver::RelaxedCapture relaxed(table);
    table.cuGraphExecDestroy(as_exec(exec_));
  }
  exec_ = nullptr;
  graph_.reset();
  source_.reset();
  spans_ = GraphSpans({}, spans_.keeping(), nullptr, {});
  let_go_of_payload();
  clock_->let_go();
}

}  // namespace gpuprof::graphs
