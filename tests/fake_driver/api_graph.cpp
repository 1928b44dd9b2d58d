// Graphs, their executable copies and launching them.
#include <algorithm>

#include "call.hpp"
#include "capture.hpp"
#include "graph.hpp"
#include "objects.hpp"
#include "time.hpp"

using namespace fakecuda;

namespace {

// What an executable copy takes of the device for each node, as measured for kernels.
constexpr std::size_t kBytesPerNode = 2304;

bool allocates(const std::vector<Node>& nodes) {
  for (const Node& node : nodes) {
    if (node.type == kNodeMemAlloc) return true;
  }
  return false;
}

bool has_exec(const State& s, Handle graph) {
  for (const auto& [handle, exec] : s.execs) {
    if (exec->graph == graph) return true;
  }
  return false;
}

Result instantiate(State& s, Handle* out, Handle handle, unsigned long long flags,
                   const char* function) {
  Context* context = nullptr;
  if (out == nullptr) return kInvalidValue;
  if (const Result answer = current_context(s, context); answer != kSuccess) return answer;
  if (const Result refused = refuse_unsafe(s); refused != kSuccess) return refused;
  const auto graph = find_graph(s, handle);
  if (!graph || (flags & ~kInstantiateFlagsMask) != 0) return kInvalidValue;
  if (is_circular(*graph)) return kInvalidValue;
  auto exec = std::make_shared<GraphExec>();
  exec->nodes = flattened(*graph);
  if (has_exec(s, handle)) {
    // The real driver made a first executable copy of such a graph, and crashed at a later one.
    if (copies_freed_memory(s, exec->nodes)) misuse(function, "with a copy of freed memory");
    if (allocates(exec->nodes)) return kNotSupported;
  }
  const std::size_t memory = exec->nodes.size() * kBytesPerNode;
  if (memory > s.config.total_memory - s.memory_used) return kOutOfMemory;
  exec->handle = new_handle(Kind::kExec);
  exec->id = s.next_graph_id++;
  exec->graph = handle;
  exec->context = context;
  exec->source = graph->nodes;
  exec->frees_on_launch = (flags & kAutoFreeOnLaunch) != 0;
  exec->memory = memory;
  exec->label = new_label(function);
  s.memory_used += memory;
  *out = exec->handle;
  s.execs[exec->handle] = std::move(exec);
  return kSuccess;
}

Result find_launch(State& s, const char* function, Handle exec_handle, Handle stream_handle,
                   std::shared_ptr<GraphExec>& exec, std::shared_ptr<Stream>& stream) {
  exec = find_exec(s, exec_handle);
  if (!exec) {
    log_line("Graph is not a valid executable graph");
    return kInvalidValue;
  }
  return find_stream(s, function, stream_handle, stream);
}

// Whether the memory that a launch is to allocate is free to be so.
bool can_allocate(const State& s, const GraphExec& exec) {
  for (const Node& node : exec.nodes) {
    if (node.type != kNodeMemAlloc) continue;
    const auto found = s.memory.find(static_cast<std::uintptr_t>(node.op.address));
    if (found != s.memory.end() && found->second.mapped && !exec.frees_on_launch) return false;
  }
  return true;
}

// A launch allocates and frees for the books at once, and not when it gets there.
void allocate(State& s, const GraphExec& exec) {
  for (const Node& node : exec.nodes) {
    const auto address = static_cast<std::uintptr_t>(node.op.address);
    if (node.type == kNodeMemFree) free_memory(s, address);
    if (node.type != kNodeMemAlloc) continue;
    Allocation& allocation = s.memory[address];
    if (!allocation.mapped) s.memory_used += allocation.size;
    allocation.mapped = true;
  }
}

bool records_destroyed_event(const GraphExec& exec) {
  return std::any_of(exec.nodes.begin(), exec.nodes.end(), [](const Node& node) {
    return node.type == kNodeEventRecord && node.event.expired();
  });
}

Result launch(State& s, const char* function, Handle exec_handle, Handle stream_handle) {
  std::shared_ptr<GraphExec> exec;
  std::shared_ptr<Stream> stream;
  Result answer = find_launch(s, function, exec_handle, stream_handle, exec, stream);
  if (answer == kSuccess) answer = refuse_implicit(s, *stream, true);
  if (answer != kSuccess) return answer;
  if (const Result refused = refuse_capturing(*stream); refused != kSuccess) return refused;
  if (!can_allocate(s, *exec)) return kInvalidValue;
  // Without other events the copy runs as it lies on the device, whatever was destroyed since.
  if (exec->has_other_events && records_destroyed_event(*exec)) {
    misuse(function, "with other events than before, one of which is destroyed");
  }
  exec->has_other_events = false;
  allocate(s, *exec);
  enqueue_graph(s, stream, *exec);
  return kSuccess;
}

Result destroy_graph(State& s, Handle handle) {
  const auto graph = find_graph(s, handle);
  if (!graph || graph->embedded) return kInvalidValue;
  if (graph->in_capture) return kIllegalState;
  forget_graph(s, *graph);
  return kSuccess;
}

Result destroy_exec(State& s, const char* function, Handle handle) {
  if (const Result refused = refuse_unsafe(s); refused != kSuccess) return refused;
  const auto exec = find_exec(s, handle);
  if (!exec) return kInvalidValue;
  // An empty one holds nothing that went with its context.
  if (!exec->context->alive && !exec->nodes.empty()) {
    misuse(function, "with an executable graph of a destroyed context");
  }
  s.execs.erase(handle);
  s.dying_execs.push_back(exec);
  return kSuccess;
}

Result add_child(State& s, Handle* out, Handle parent_handle, const Handle* after,
                 std::size_t count, Handle child_handle) {
  const auto parent = find_graph(s, parent_handle);
  const auto child = find_graph(s, child_handle);
  if (out == nullptr || !parent || !child || (after == nullptr && count != 0)) return kInvalidValue;
  Node node = node_of(kNodeGraph, {});
  node.op.kind = OpKind::kJoin;
  for (std::size_t i = 0; i < count; ++i) {
    const auto found = s.nodes.find(after[i]);
    if (found == s.nodes.end() || found->second.first != parent_handle) return kInvalidValue;
    node.after.push_back(found->second.second);
  }
  node.child = clone_into_node(s, *child);
  list_node(s, *parent, std::move(node));
  *out = parent->nodes.back().handle;
  return kSuccess;
}

}  // namespace

FAKECUDA_EXPORT Result cuGraphCreate(Handle* out, unsigned flags) {
  return call({__func__}, [&](const char* function) -> Result {
    if (out == nullptr || flags != 0) return kInvalidValue;
    *out = make_graph(state(), function)->handle;
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuGraphDestroy(Handle handle) {
  return call_destroying({__func__}, handle, [&] { return destroy_graph(state(), handle); });
}

FAKECUDA_EXPORT Result cuGraphAddChildGraphNode(Handle* out, Handle graph, const Handle* after,
                                                std::size_t count, Handle child) {
  return call({__func__}, [&] { return add_child(state(), out, graph, after, count, child); });
}

FAKECUDA_EXPORT Result cuGraphInstantiateWithFlags(Handle* out, Handle graph,
                                                   unsigned long long flags) {
  return call({__func__}, [&](const char* function) {
    return instantiate(state(), out, graph, flags, function);
  });
}

FAKECUDA_EXPORT Result cuGraphExecDestroy(Handle handle) {
  return call_destroying({__func__}, handle, [&](const char* function) {
    return destroy_exec(state(), function, handle);
  });
}

FAKECUDA_EXPORT Result cuGraphLaunch(Handle exec, Handle stream) {
  return call({__func__, InChild::kAnswersSuccess},
              [&](const char* function) { return launch(state(), function, exec, stream); });
}

FAKECUDA_EXPORT Result cuGraphUpload(Handle exec_handle, Handle stream_handle) {
  return call({__func__, InChild::kAnswersSuccess}, [&](const char* function) -> Result {
    std::shared_ptr<GraphExec> exec;
    std::shared_ptr<Stream> stream;
    const Result answer = find_launch(state(), function, exec_handle, stream_handle, exec, stream);
    return answer != kSuccess ? answer : refuse_capturing(*stream);
  });
}
