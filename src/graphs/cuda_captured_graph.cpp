#include <algorithm>
#include <utility>

#include "driver/cuda_thread_state.hpp"
#include "graphs/captured_graph.hpp"
#include "graphs/cuda_handles.hpp"
#include "timing/cuda_contexts.hpp"

namespace gpuprof::graphs {

using driver::check;
using driver::Error;
using driver::Table;
using timing::contexts::as_stream;

namespace {

std::int64_t index_of(const Table& table, CUgraph graph, CUgraphNode wanted) {
  if (wanted == nullptr) return -1;
  const std::vector<CUgraphNode> nodes = nodes_of(table, graph);
  const auto found = std::find(nodes.begin(), nodes.end(), wanted);
  return found == nodes.end() ? -1 : found - nodes.begin();
}

std::int64_t free_memory(const Table& table) noexcept {
  std::size_t free = 0;
  std::size_t total = 0;
  return table.cuMemGetInfo(&free, &total) == CUDA_SUCCESS ? static_cast<std::int64_t>(free) : -1;
}

std::optional<std::uint64_t> taken(std::int64_t before, std::int64_t after) noexcept {
  if (after < 0 || before < after) return std::nullopt;  // not known, or others let go of more
  return static_cast<std::uint64_t>(before - after);
}

}  // namespace

CapturedGraph::CapturedGraph(CapturedParts parts, void* borrowed, std::uintptr_t stream,
                             int ordinal, GraphTimers keeping)
    : generation_(driver::fork_generation()),
      order_(std::make_shared<LaunchOrder>()),
      spans_({}, keeping, nullptr, {}) {
  const Table& table = driver::ready();
  clock_ = parts.clock;
  if (clock_ == nullptr) clock_ = timing::contexts::find(table, stream, ordinal).clock;
  device_ = clock_->ordinal();
  if (!parts.graph) parts.graph = {borrowed, DiscardGraph{true}};
  spans_ = GraphSpans(std::move(parts.timers), keeping, parts.graph.get(), parts.events);
  source_ = graph_ = std::make_shared<const CapturedParts>(std::move(parts));
  clock_->hold();
}

CapturedGraph::~CapturedGraph() {
  if (!closed()) close();
  if (generation_ == driver::fork_generation()) return;
  [[maybe_unused]] void* const leaked = payload_.release();  // the parent's
}

std::unique_lock<std::mutex> CapturedGraph::enter() {
  driver::ready();
  return std::unique_lock(order_->mutex_);
}

std::unique_lock<std::mutex> CapturedGraph::use() {
  auto lock = enter();
  throw_if_unusable();
  return lock;
}

driver::EventAccess CapturedGraph::throw_if_unusable() const {
  if (closed_.load(std::memory_order_relaxed)) {
    refuse("this graph is closed; capture a new one");
  }
  if (const auto access = clock_->try_access()) return *access;
  throw Error(CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "cuCtxGetId",
              "the graph's context was destroyed or reset, and the graph with it");
}

void CapturedGraph::retain(Payload payload) {
  if (!payload) return;
  const auto lock = use();
  record_completions();
  payload_ = std::move(payload);
}

void CapturedGraph::read_scalars(const std::vector<std::shared_ptr<const DeviceScalar>>& scalars) {
  const auto lock = use();
  for (const auto& scalar : scalars) {
    const bool is_known =
        std::any_of(scalars_.begin(), scalars_.end(),
                    [&](const ReadScalar& each) { return each.scalar.lock() == scalar; });
    if (&scalar->clock() == clock_ && !is_known) scalars_.push_back({scalar});
  }
}

void CapturedGraph::set_launch_order(std::shared_ptr<LaunchOrder> order) {
  {
    const auto lock = use();
    record_completions();
    in_order_ = true;
  }
  order_ = std::move(order);
}

std::shared_ptr<const timing::OwnEvent> CapturedGraph::make_completed() const {
  return std::make_shared<const timing::OwnEvent>(*clock_, CU_EVENT_DISABLE_TIMING);
}

// With the lock held.
void CapturedGraph::record_completions() {
  if (!completed_) completed_ = make_completed();
}

void CapturedGraph::add_copies(const std::vector<IoCopy>& in, const std::vector<IoCopy>& out) {
  const auto lock = use();
  if (exec_ != nullptr || graph_->graph == nullptr || !copies_.empty()) {
    refuse("copies are added to a graph once, before there is an executable copy of it");
  }
  const driver::CurrentContext current(driver::ready(), clock_->context());
  copies_.add(graph_->graph.get(), clock_->context(), in, out);
}

void CapturedGraph::release_payload() noexcept {
  if (!payload_) return;
  release_later(std::move(payload_), payload_used_ ? completed_ : nullptr, record_failed_);
}

void CapturedGraph::instantiate() {
  const auto lock = use();
  const Table& table = driver::ready();
  const driver::CurrentContext current(table, clock_->context());
  const driver::RelaxedCapture relaxed(table);
  CUgraphExec exec = nullptr;
  try {
    check(table.cuGraphInstantiateWithFlags(&exec, as_graph(graph_->graph.get()),
                                            CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH),
          "cuGraphInstantiateWithFlags");
    copies_.disarm();
  } catch (...) {
    if (exec != nullptr && !driver::is_blocked()) {
      table.cuGraphExecDestroy(exec);
    }
    throw;
  }
  exec_ = exec;
  owns_exec_ = true;
}

// Not measured at each instantiation: asking twice costs more than all else that a capture adds.
GraphMemory CapturedGraph::memory() {
  const auto lock = enter();
  if (measured_ || closed()) return memory_;
  throw_if_unusable();
  if (graph_->graph == nullptr) return memory_;
  const Table& table = driver::ready();
  const driver::CurrentContext current(table, clock_->context());
  const driver::RelaxedCapture relaxed(table);
  const std::int64_t before = free_memory(table);
  CUgraphExec twin = nullptr;
  const CUresult status = table.cuGraphInstantiateWithFlags(
      &twin, as_graph(graph_->graph.get()), CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  const std::int64_t after = free_memory(table);
  if (twin != nullptr) table.cuGraphExecDestroy(twin);
  measured_ = true;
  // A graph that allocates can have one executable copy only (801): not known then.
  if (status == CUDA_ERROR_NOT_SUPPORTED) return memory_;
  check(status, "cuGraphInstantiateWithFlags");
  memory_.instantiate = taken(before, after);
  return memory_;
}

void CapturedGraph::borrow_exec(void* exec) {
  const auto lock = use();
  if (!copies_.empty()) {
    const driver::CurrentContext current(driver::ready(), clock_->context());
    copies_.disarm();
  }
  exec_ = exec;
  owns_exec_ = false;
}

void CapturedGraph::upload(std::uintptr_t stream) {
  const auto lock = use();
  if (uploaded_.load(std::memory_order_relaxed)) return;
  const Table& table = driver::ready();
  const driver::CurrentContext current(table, clock_->context());
  throw_if_capturing(table, stream);
  const std::int64_t before = free_memory(table);
  check(table.cuGraphUpload(as_exec(exec_), as_stream(stream)), "cuGraphUpload");
  uploaded_.store(true, std::memory_order_relaxed);
  memory_.upload = taken(before, free_memory(table));
}

// With both locks held. Checks what an update cannot change and the driver does not refuse.
void CapturedGraph::throw_unless_alike(const CapturedGraph& other) const {
  if (exclusive_count_ != 0) {
    refuse("this graph is being launched; update it when the launch has returned");
  }
  if (graph_->graph == nullptr || other.graph_->graph == nullptr) {
    refuse(
        "an update needs both graphs, and one of these is known by its executable copy "
        "alone");
  }
  const auto require_same = [](std::size_t own, std::size_t others, const char* what) {
    if (own == others) return;
    refuse("the graphs have " + std::to_string(own) + " and " + std::to_string(others) + what);
  };
  require_same(spans_.size(), other.spans_.size(),
               " timed spans, and an update cannot change their number; capture both with the same "
               "timers");
  require_same(copies_.size(), other.copies_.size(),
               " copies of inputs and outputs, and an update cannot change their number");
}

bool CapturedGraph::update(CapturedGraph& other, Payload payload, UpdateRefusal& refusal) {
  const Table& table = driver::ready();
  std::unique_lock lock(order_->mutex_, std::defer_lock);
  std::unique_lock lock_of_other(other.order_->mutex_, std::defer_lock);
  if (order_ == other.order_) {
    lock.lock();
  } else {
    std::lock(lock, lock_of_other);
  }
  throw_if_unusable();
  other.throw_if_unusable();
  throw_unless_alike(other);
  const driver::CurrentContext current(table, clock_->context());
  const driver::RelaxedCapture relaxed(table);
  std::shared_ptr<const timing::OwnEvent> completed;  // the old payload waits for the old event
  if (payload || in_order_) completed = make_completed();
  std::vector<ReadScalar> scalars;
  scalars.reserve(other.scalars_.size());
  for (const ReadScalar& each : other.scalars_) scalars.push_back({each.scalar});
  other.copies_.disarm();
  CUgraphExecUpdateResultInfo info{};
  const CUresult status =
      table.cuGraphExecUpdate(as_exec(exec_), as_graph(other.graph_->graph.get()), &info);
  if (status == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) {
    refusal.result = static_cast<int>(info.result != 0 ? info.result : CU_GRAPH_EXEC_UPDATE_ERROR);
    // The driver names the nodes of the executable graph by those of its source.
    refusal.node = index_of(table, as_graph(source_->graph.get()), info.errorNode);
    refusal.node_of_other = index_of(table, as_graph(other.graph_->graph.get()), info.errorNode);
    if (refusal.node_of_other < 0) {
      refusal.node_of_other =
          index_of(table, as_graph(other.graph_->graph.get()), info.errorFromNode);
    }
  }
  if (status != CUDA_SUCCESS) {
    // Also consumes the log's lines of this refusal, so that the next error does not show them.
    const Error error = driver::error_of(status, "cuGraphExecUpdate");
    if (status == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) return false;
    throw error;
  }
  release_payload();
  payload_ = std::move(payload);
  completed_ = std::move(completed);
  payload_used_ = record_failed_ = false;
  if (!in_order_) order_->last_.reset();
  copies_.take_over(other.copies_);
  graph_ = other.graph_;
  spans_.take_over(other.spans_);
  scalars_ = std::move(scalars);
  uploaded_.store(false, std::memory_order_relaxed);
  return true;
}

std::vector<SpanTime> CapturedGraph::times() {
  const auto lock = use();
  return spans_.read();
}

void* CapturedGraph::graph() {
  const auto lock = use();
  return graph_->graph.get();
}

void* CapturedGraph::exec() {
  const auto lock = use();
  return exec_;
}

std::size_t CapturedGraph::node_count() {
  const auto lock = use();
  return count_nodes(driver::ready(), as_graph(graph_->graph.get()));
}

std::vector<Node> CapturedGraph::nodes() {
  const auto lock = use();
  return walk(graph_->graph.get(), graph_->labels);
}

bool CapturedGraph::has_labels() {
  const auto lock = enter();
  return graph_ != nullptr && graph_->graph != nullptr && !graph_->labels.empty();
}

// An update gives each node of the executable graph what the node at its place in the other graph
// does, and leaves it its number.
std::vector<LabelledNode> CapturedGraph::labelled_nodes() {
  const auto lock = use();
  if (graph_->labels.empty()) return {};
  const Table& table = driver::ready();
  const std::uint32_t exec_id = id_of_exec(exec_);
  const std::vector<CUgraphNode> handles = nodes_of(table, as_graph(graph_->graph.get()));
  const std::vector<CUgraphNode> numbered =
      source_ == graph_ ? handles : nodes_of(table, as_graph(source_->graph.get()));
  std::vector<LabelledNode> labelled;
  for (std::size_t i = 0; i < std::min(handles.size(), numbered.size()); ++i) {
    const auto found = graph_->labels.find(handles[i]);
    if (found == graph_->labels.end()) continue;
    labelled.push_back({in_exec(id_of_node(numbered[i]), exec_id), found->second});
  }
  return labelled;
}

bool CapturedGraph::close(bool wait) noexcept {
  if (generation_ != driver::fork_generation()) {
    closed_.store(true, std::memory_order_release);
    return true;
  }
  std::unique_lock lock(order_->mutex_, std::defer_lock);
  if (wait) {
    lock.lock();
  } else if (!lock.try_lock()) {
    return false;
  }
  if (!closed_.exchange(true, std::memory_order_acq_rel) && exclusive_count_ == 0) destroy();
  return true;
}

// With the lock held, once.
void CapturedGraph::destroy() noexcept {
  if (exec_ != nullptr && owns_exec_ && clock_->check_alive()) {
    const Table& table = *driver::loaded_or_null();
    const driver::RelaxedCapture relaxed(table);
    table.cuGraphExecDestroy(as_exec(exec_));
  }
  exec_ = nullptr;
  graph_.reset();
  source_.reset();
  spans_ = GraphSpans({}, spans_.keeping(), nullptr, {});
  release_payload();
  scalars_.clear();
  completed_.reset();
  clock_->let_go();
}

}  // namespace gpuprof::graphs
