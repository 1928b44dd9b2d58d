// Changing an executable copy of a graph, and what graphs keep alive.
#include "call.hpp"
#include "capture.hpp"
#include "graph.hpp"
#include "objects.hpp"

using namespace fakecuda;

namespace {

UpdateInfo refused_by_test(const State& s, const Graph& graph) {
  const Handle first = graph.nodes.empty() ? 0 : graph.nodes.front().handle;
  return {s.config.update_refusal, first, 0};
}

// The nodes keep the handles of the graph that the copy was made of.
void take_over(GraphExec& exec, const Graph& graph) {
  std::vector<Node> fresh = flattened(graph);
  for (std::size_t i = 0; i < fresh.size(); ++i) fresh[i].handle = exec.nodes[i].handle;
  exec.nodes = std::move(fresh);
  exec.source = graph.nodes;
  exec.replaced.emplace_back(exec.last, std::move(exec.objects));
  exec.objects = retained(graph);
}

Result update(State& s, Handle exec_handle, Handle graph_handle, UpdateInfo& info) {
  const auto exec = find_exec(s, exec_handle);
  const auto graph = find_graph(s, graph_handle);
  info = {kUpdateError, 0, 0};
  if (!exec || !graph) return kInvalidValue;
  info = s.config.update_refusal != kUpdateSuccess ? refused_by_test(s, *graph)
                                                   : compare(exec->source, graph->nodes);
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
  if (answer != kSuccess) return answer;
  for (Node& node : exec->nodes) {
    if (node.handle != node_handle) continue;
    node.event = event;
    node.event_handle = event_handle;
    return kSuccess;
  }
  return kInvalidValue;
}

Result create_object(State& s, Handle* out, void* data, HostFunction destroy, unsigned references,
                     unsigned flags, const char* function) {
  if (out == nullptr || destroy == nullptr || references == 0 || flags != kNoDestructorSync) {
    return kInvalidValue;
  }
  auto object = std::make_shared<UserObject>();
  object->handle = new_handle(Kind::kUserObject);
  object->destroy = destroy;
  object->data = data;
  object->references = references;
  object->label = new_label(function);
  *out = object->handle;
  s.user_objects[object->handle] = std::move(object);
  return kSuccess;
}

std::shared_ptr<UserObject> find_object(const State& s, const char* function, Handle handle) {
  if (handle == 0) return nullptr;
  const auto found = s.user_objects.find(handle);
  if (found == s.user_objects.end()) misuse(function, "with a user object that is gone");
  return found->second;
}

Result retain_in_graph(State& s, const char* function, Handle graph_handle, Handle object_handle,
                       unsigned count, unsigned flags) {
  const auto graph = find_graph(s, graph_handle);
  const auto object = find_object(s, function, object_handle);
  if (!graph || !object || count == 0 || flags > kUserObjectMove) return kInvalidValue;
  retain(graph->objects, object, count);
  if (flags == kUserObjectMove) release(s, object, count);
  return kSuccess;
}

}  // namespace

FAKECUDA_EXPORT Result cuGraphExecUpdate(Handle exec, Handle graph, Handle* error_node,
                                         int* result) {
  static const Function function{"cuGraphExecUpdate"};
  return call(function, [&]() -> Result {
    UpdateInfo info{};
    if (result == nullptr) return kInvalidValue;
    const Result answer = update(state(), exec, graph, info);
    if (error_node != nullptr) *error_node = info.error_node;
    *result = info.result;
    return answer;
  });
}

FAKECUDA_EXPORT Result cuGraphExecUpdate_v2(Handle exec, Handle graph, UpdateInfo* info) {
  static const Function function{"cuGraphExecUpdate_v2"};
  return call(function, [&]() -> Result {
    if (info == nullptr) return kInvalidValue;
    return update(state(), exec, graph, *info);
  });
}

FAKECUDA_EXPORT Result cuGraphExecEventRecordNodeSetEvent(Handle exec, Handle node, Handle event) {
  static const Function function{"cuGraphExecEventRecordNodeSetEvent"};
  return call(function, [&] { return set_event(state(), function.symbol, exec, node, event); });
}

FAKECUDA_EXPORT Result cuUserObjectCreate(Handle* out, void* data, HostFunction destroy,
                                          unsigned references, unsigned flags) {
  static const Function function{"cuUserObjectCreate"};
  return call(function, [&] {
    return create_object(state(), out, data, destroy, references, flags, function.symbol);
  });
}

FAKECUDA_EXPORT Result cuUserObjectRelease(Handle handle, unsigned count) {
  static const Function function{"cuUserObjectRelease"};
  return call_destroying(function, handle, [&]() -> Result {
    const auto object = find_object(state(), function.symbol, handle);
    if (!object || count == 0) return kInvalidValue;
    release(state(), object, count);
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuGraphRetainUserObject(Handle graph, Handle object, unsigned count,
                                               unsigned flags) {
  static const Function function{"cuGraphRetainUserObject"};
  return call(function, [&] {
    return retain_in_graph(state(), function.symbol, graph, object, count, flags);
  });
}
