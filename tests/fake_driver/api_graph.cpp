// Graphs, their executable copies and launching them.
#include <algorithm>

#include "call.hpp"
#include "capture.hpp"
#include "objects.hpp"
#include "time.hpp"

using namespace fakecuda;

namespace {

Result instantiate(State& s, Handle* out, Handle handle, const char* function) {
  Context* context = nullptr;
  if (out == nullptr) return kInvalidValue;
  if (const Result answer = current_context(s, context); answer != kSuccess) return answer;
  if (const Result refused = refuse_unsafe(s); refused != kSuccess) return refused;
  const auto graph = find_graph(s, handle);
  if (!graph) return kInvalidValue;
  auto exec = std::make_shared<GraphExec>();
  exec->handle = new_handle(Kind::kExec);
  exec->context = context;
  exec->nodes = graph->nodes;
  exec->label = new_label(function);
  *out = exec->handle;
  s.execs[exec->handle] = std::move(exec);
  return kSuccess;
}

Result find_launch(State& s, const char* function, Handle exec_handle, Handle stream_handle,
                   std::shared_ptr<GraphExec>& exec, std::shared_ptr<Stream>& stream) {
  exec = find_exec(s, exec_handle);
  if (!exec) return kInvalidValue;
  return find_stream(s, function, stream_handle, stream);
}

Result launch(State& s, const char* function, Handle exec_handle, Handle stream_handle) {
  std::shared_ptr<GraphExec> exec;
  std::shared_ptr<Stream> stream;
  Result answer = find_launch(s, function, exec_handle, stream_handle, exec, stream);
  if (answer == kSuccess) answer = refuse_implicit(s, *stream, true);
  if (answer != kSuccess) return answer;
  if (const Result refused = refuse_capturing(*stream); refused != kSuccess) return refused;
  enqueue_graph(s, stream, *exec);
  return kSuccess;
}

}  // namespace

FAKECUDA_EXPORT Result cuGraphCreate(Handle* out, unsigned flags) {
  static const Function function{"cuGraphCreate"};
  return call(function, [&]() -> Result {
    if (out == nullptr || flags != 0) return kInvalidValue;
    auto graph = std::make_shared<Graph>();
    graph->handle = new_handle(Kind::kGraph);
    graph->label = new_label(function.symbol);
    *out = graph->handle;
    state().graphs[graph->handle] = std::move(graph);
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuGraphDestroy(Handle handle) {
  static const Function function{"cuGraphDestroy"};
  return call_destroying(function, handle, [&]() -> Result {
    const auto graph = find_graph(state(), handle);
    if (!graph) return kInvalidValue;
    if (graph->in_capture) return kIllegalState;
    for (const Node& node : graph->nodes) state().nodes.erase(node.handle);
    state().graphs.erase(handle);
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuGraphInstantiateWithFlags(Handle* out, Handle graph,
                                                   unsigned long long /*flags*/) {
  static const Function function{"cuGraphInstantiateWithFlags"};
  return call(function, [&] { return instantiate(state(), out, graph, function.symbol); });
}

FAKECUDA_EXPORT Result cuGraphExecDestroy(Handle handle) {
  static const Function function{"cuGraphExecDestroy"};
  return call_destroying(function, handle, [&]() -> Result {
    if (const Result refused = refuse_unsafe(state()); refused != kSuccess) return refused;
    return state().execs.erase(handle) != 0 ? kSuccess : kInvalidValue;
  });
}

FAKECUDA_EXPORT Result cuGraphLaunch(Handle exec, Handle stream) {
  static const Function function{"cuGraphLaunch", InChild::kAnswersSuccess};
  return call(function, [&] { return launch(state(), function.symbol, exec, stream); });
}

FAKECUDA_EXPORT Result cuGraphUpload(Handle exec_handle, Handle stream_handle) {
  static const Function function{"cuGraphUpload"};
  return call(function, [&]() -> Result {
    std::shared_ptr<GraphExec> exec;
    std::shared_ptr<Stream> stream;
    const Result answer =
        find_launch(state(), function.symbol, exec_handle, stream_handle, exec, stream);
    return answer != kSuccess ? answer : refuse_capturing(*stream);
  });
}

FAKECUDA_EXPORT Result cuGraphGetNodes(Handle handle, Handle* nodes, std::size_t* count) {
  static const Function function{"cuGraphGetNodes"};
  return call(function, [&]() -> Result {
    const auto graph = find_graph(state(), handle);
    if (!graph || count == nullptr) return kInvalidValue;
    const std::size_t all = graph->nodes.size();
    if (nodes == nullptr) {
      *count = all;
      return kSuccess;
    }
    for (std::size_t i = 0; i < *count; ++i) nodes[i] = i < all ? graph->nodes[i].handle : 0;
    *count = std::min(*count, all);
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuGraphNodeGetType(Handle node, int* type) {
  static const Function function{"cuGraphNodeGetType"};
  return call(function, [&]() -> Result {
    const auto found = state().nodes.find(node);
    if (found == state().nodes.end() || type == nullptr) return kInvalidValue;
    const auto graph = find_graph(state(), found->second.first);
    *type = graph->nodes[static_cast<std::size_t>(found->second.second)].type;
    return kSuccess;
  });
}
