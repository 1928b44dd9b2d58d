// Changing an executable copy of a graph.
#include "call.hpp"
#include "capture.hpp"
#include "graph.hpp"
#include "objects.hpp"

using namespace fakecuda;

namespace {

// The nodes keep the handles of the graph that the copy was made of.
void take_over(GraphExec& exec, const Graph& graph) {
  std::vector<Node> fresh = flattened(graph);
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    fresh[i].handle = exec.nodes[i].handle;
    fresh[i].enabled = exec.nodes[i].enabled;
  }
  exec.nodes = std::move(fresh);
  exec.source = graph.nodes;
}

Result update(State& s, Handle exec_handle, Handle graph_handle, UpdateInfo& info) {
  const auto exec = find_exec(s, exec_handle);
  const auto graph = find_graph(s, graph_handle);
  info = {};
  if (!exec || !graph) return kInvalidValue;
  info = compare(s, exec->source, graph->nodes);
  if (info.result != kUpdateSuccess) return kGraphExecUpdateFailure;
  take_over(*exec, *graph);
  return kSuccess;
}

Result set_event(State& s, const char* function, Handle exec_handle, Handle node_handle,
                 Handle event_handle) {
  const auto exec = find_exec(s, exec_handle);
  if (!exec || find_node(s, node_handle, kNodeEventRecord) == nullptr) return kInvalidValue;
  std::shared_ptr<Event> event;
  if (event_handle == 0) return kInvalidValue;
  const Result answer = find_event(s, function, event_handle, event);
  if (answer == kContextIsDestroyed) return answer;  // a failed kernel is no hindrance
  if (event->context != exec->context) return kInvalidValue;
  for (Node& node : exec->nodes) {
    if (node.handle != node_handle) continue;
    node.event = event;
    node.event_handle = event_handle;
    exec->has_other_events = true;
    return kSuccess;
  }
  return kInvalidValue;
}

}  // namespace

FAKECUDA_EXPORT Result cuGraphExecUpdate_v2(Handle exec, Handle graph, UpdateInfo* info) {
  return call({__func__}, [&]() -> Result {
    if (info == nullptr) return kInvalidValue;
    return update(state(), exec, graph, *info);
  });
}

FAKECUDA_EXPORT Result cuGraphExecEventRecordNodeSetEvent(Handle exec, Handle node, Handle event) {
  return call({__func__, InChild::kInvalidValue}, [&](const char* function) {
    return set_event(state(), function, exec, node, event);
  });
}
