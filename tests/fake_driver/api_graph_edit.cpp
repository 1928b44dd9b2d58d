// Adding to a graph, and changing the copies of an executable one.
#include <algorithm>

#include "call.hpp"
#include "copies.hpp"
#include "graph.hpp"
#include "objects.hpp"

using namespace fakecuda;

namespace {

bool find_in(const State& s, Handle graph, Handle node, int& index) {
  const auto found = s.nodes.find(node);
  if (found == s.nodes.end() || found->second.first != graph) return false;
  index = found->second.second;
  return true;
}

bool is_one_row(const CopyParams& params) {
  const auto is_plain = [](const CopyEnd& end) {
    return end.y == 0 && end.z == 0 && end.lod == 0 && end.array == nullptr &&
           (end.type == kMemoryHost || end.type == kMemoryDevice);
  };
  return params.width != 0 && params.height == 1 && params.depth == 1 && is_plain(params.source) &&
         is_plain(params.target);
}

std::uintptr_t address_of(const CopyEnd& end) {
  const auto base = end.type == kMemoryHost ? reinterpret_cast<std::uintptr_t>(end.host)
                                            : static_cast<std::uintptr_t>(end.device);
  return base + end.x;
}

bool is_there(const State& s, const CopyEnd& end, std::size_t size) {
  return end.type == kMemoryHost || is_allocated(s, address_of(end), size);
}

// Copies of one row only, which is all that anybody adds.
Result read_params(const State& s, const CopyParams* params, Op& op) {
  if (params == nullptr || !is_one_row(*params)) return kInvalidValue;
  if (!is_there(s, params->source, params->width)) return kInvalidValue;
  if (!is_there(s, params->target, params->width)) return kInvalidValue;
  op = copy_op(address_of(params->target), address_of(params->source), params->width);
  op.to_host = params->target.type == kMemoryHost;
  op.from_host = params->source.type == kMemoryHost;
  return kSuccess;
}

Result add_copy(State& s, Handle* out, Handle graph_handle, const Handle* after, std::size_t count,
                const CopyParams* params, Handle context_handle) {
  Context* context = nullptr;
  const auto graph = find_graph(s, graph_handle);
  Op op;
  if (out == nullptr || !graph || (after == nullptr && count != 0)) return kInvalidValue;
  Result answer = named_context(s, context_handle, context);
  if (answer == kSuccess) answer = read_params(s, params, op);
  if (answer != kSuccess) return answer;
  Node node = copy_node(s, std::move(op));
  for (std::size_t i = 0; i < count; ++i) {
    int index = 0;
    if (!find_in(s, graph_handle, after[i], index)) return kInvalidValue;
    node.after.push_back(index);
  }
  list_node(s, *graph, std::move(node));
  *out = graph->nodes.back().handle;
  return kSuccess;
}

Result add_edges(State& s, Handle graph_handle, const Handle* from, const Handle* to,
                 std::size_t count) {
  const auto graph = find_graph(s, graph_handle);
  if (!graph || (count != 0 && (from == nullptr || to == nullptr))) return kInvalidValue;
  for (std::size_t i = 0; i < count; ++i) {
    int before = 0;
    int index = 0;
    if (!find_in(s, graph_handle, from[i], before)) return kInvalidValue;
    if (!find_in(s, graph_handle, to[i], index)) return kInvalidValue;
    if (before == index) return kInvalidValue;
    auto& all = graph->nodes[static_cast<std::size_t>(index)].after;
    if (std::find(all.begin(), all.end(), before) != all.end()) return kInvalidValue;
    all.push_back(before);
  }
  return kSuccess;
}

// Null unless the executable graph has a copy of that node.
Node* find_in_exec(State& s, Handle exec_handle, Handle node_handle) {
  const auto exec = find_exec(s, exec_handle);
  if (!exec || find_node(s, node_handle) == nullptr) return nullptr;
  for (Node& node : exec->nodes) {
    if (node.handle == node_handle) return &node;
  }
  return nullptr;
}

// What was queued before goes on with its own copy of the parameters.
Result set_copy(State& s, Handle exec, Handle handle, const CopyParams* params,
                Handle context_handle) {
  Context* context = nullptr;
  Node* node = find_in_exec(s, exec, handle);
  Op op;
  if (node == nullptr || node->type != kNodeMemcpy) return kInvalidValue;
  Result answer = named_context(s, context_handle, context);
  if (answer == kSuccess) answer = read_params(s, params, op);
  if (answer != kSuccess) return answer;
  const Node changed = copy_node(s, std::move(op));
  if (!can_become(*node, changed)) return kInvalidValue;
  node->op = changed.op;
  return kSuccess;
}

// What was made of the graph before does not change.
Result set_copy_of_graph(State& s, Handle handle, const CopyParams* params) {
  const auto found = s.nodes.find(handle);
  Op op;
  if (find_node(s, handle, kNodeMemcpy) == nullptr) return kInvalidValue;
  if (const Result answer = read_params(s, params, op); answer != kSuccess) return answer;
  Node& node =
      find_graph(s, found->second.first)->nodes[static_cast<std::size_t>(found->second.second)];
  const Node changed = copy_node(s, std::move(op));
  node.op = changed.op;
  node.source_kind = changed.source_kind;
  node.target_kind = changed.target_kind;
  return kSuccess;
}

Result switch_node(State& s, Handle exec, Handle handle, bool on) {
  Node* node = find_in_exec(s, exec, handle);
  if (node == nullptr) return kInvalidValue;
  const bool can_be =
      node->type == kNodeKernel || node->type == kNodeMemset || node->type == kNodeMemcpy;
  if (!can_be) return kInvalidValue;
  node->enabled = on;
  return kSuccess;
}

}  // namespace

FAKECUDA_EXPORT Result cuGraphAddMemcpyNode(Handle* out, Handle graph, const Handle* after,
                                            std::size_t count, const CopyParams* params,
                                            Handle context) {
  return call({__func__},
              [&] { return add_copy(state(), out, graph, after, count, params, context); });
}

FAKECUDA_EXPORT Result cuGraphAddDependencies(Handle graph, const Handle* from, const Handle* to,
                                              std::size_t count) {
  return call({__func__}, [&] { return add_edges(state(), graph, from, to, count); });
}

FAKECUDA_EXPORT Result cuGraphMemcpyNodeSetParams(Handle node, const CopyParams* params) {
  return call({__func__}, [&] { return set_copy_of_graph(state(), node, params); });
}

FAKECUDA_EXPORT Result cuGraphExecMemcpyNodeSetParams(Handle exec, Handle node,
                                                      const CopyParams* params, Handle context) {
  return call({__func__}, [&] { return set_copy(state(), exec, node, params, context); });
}

FAKECUDA_EXPORT Result cuGraphNodeSetEnabled(Handle exec, Handle node, unsigned on) {
  return call({__func__}, [&] { return switch_node(state(), exec, node, on != 0); });
}
