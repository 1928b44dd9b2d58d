// Looking into graphs: nodes, what they do, edges, and the names of kernels.
#include <algorithm>

#include "call.hpp"
#include "graph.hpp"
#include "objects.hpp"

using namespace fakecuda;

namespace {

Result list_nodes(const State& s, Handle handle, Handle* nodes, std::size_t* count) {
  const auto graph = find_graph(s, handle);
  if (!graph || count == nullptr) return kInvalidValue;
  const std::size_t all = graph->nodes.size();
  if (nodes == nullptr) {
    *count = all;
    return kSuccess;
  }
  for (std::size_t i = 0; i < *count; ++i) nodes[i] = i < all ? graph->nodes[i].handle : 0;
  *count = std::min(*count, all);
  return kSuccess;
}

struct Edge {
  Handle from;
  Handle to;
  EdgeData data;
};

std::vector<Edge> edges_of(const Graph& graph) {
  std::vector<Edge> edges;
  for (const Node& node : graph.nodes) {
    EdgeData data{};
    if (node.kernel.programmatic) {
      data.from_port = kPortProgrammatic;
      data.type = kEdgeProgrammatic;
    }
    for (const int before : node.after) {
      edges.push_back({graph.nodes[static_cast<std::size_t>(before)].handle, node.handle, data});
    }
  }
  return edges;
}

bool is_plain(const Edge& edge) { return edge.data.type == 0 && edge.data.from_port == 0; }

Result list_edges(const State& s, Handle handle, Handle* from, Handle* to, EdgeData* data,
                  std::size_t* count) {
  const auto graph = find_graph(s, handle);
  if (!graph || count == nullptr) return kInvalidValue;
  const std::vector<Edge> edges = edges_of(*graph);
  if (from == nullptr && to == nullptr && data == nullptr) {
    *count = edges.size();
    return kSuccess;
  }
  if (from == nullptr || to == nullptr) return kInvalidValue;
  if (data == nullptr && !std::all_of(edges.begin(), edges.end(), is_plain)) return kLossyQuery;
  for (std::size_t i = 0; i < *count; ++i) {
    const Edge edge = i < edges.size() ? edges[i] : Edge{};
    from[i] = edge.from;
    to[i] = edge.to;
    if (data != nullptr) data[i] = edge.data;
  }
  *count = std::min(*count, edges.size());
  return kSuccess;
}

KernelParams kernel_params(const Node& node) {
  KernelParams params{};
  std::copy(std::begin(node.kernel.grid), std::end(node.kernel.grid), params.grid);
  std::copy(std::begin(node.kernel.block), std::end(node.kernel.block), params.block);
  params.shared = node.kernel.shared;
  if (node.kernel.handles != KernelHandles::kKernelAlone) params.func = node.kernel.function;
  if (node.kernel.handles != KernelHandles::kFunction) params.kern = node.kernel.function;
  return params;
}

CopyEnd copy_end(bool on_host, std::uintptr_t address) {
  CopyEnd end{};
  end.type = on_host ? kMemoryHost : kMemoryDevice;
  if (on_host) {
    end.host = reinterpret_cast<const void*>(address);
  } else {
    end.device = address;
  }
  return end;
}

CopyParams copy_params(const Node& node) {
  const Op& op = node.op;
  CopyParams params{};
  params.source = copy_end(op.from_host, op.source);
  params.target = copy_end(op.to_host, static_cast<std::uintptr_t>(op.address));
  params.width = op.count;
  params.height = params.depth = 1;
  return params;
}

MemsetParams memset_params(const Node& node) {
  MemsetParams params{};
  params.target = node.op.address;
  params.value = static_cast<unsigned>(node.op.value);
  params.element_size = node.op.element_size;
  params.width = node.op.count;
  params.height = 1;
  return params;
}

MemAllocParams alloc_params(const State& s, const Node& node) {
  constexpr int kPinned = 1;
  constexpr int kOnDevice = 1;
  MemAllocParams params{};
  params.allocation_type = kPinned;
  params.location_type = kOnDevice;
  const auto found = s.memory.find(static_cast<std::uintptr_t>(node.op.address));
  if (found != s.memory.end()) params.location_id = found->second.context->device;
  params.size = node.op.count;
  params.address = node.op.address;
  return params;
}

// Finds the node and gives what `read` makes of it.
template <typename Out, typename Read>
Result tell(Handle handle, NodeType type, Out* out, Read&& read) {
  const Node* node = find_node(state(), handle, type);
  if (node == nullptr || out == nullptr) return kInvalidValue;
  *out = read(*node);
  return kSuccess;
}

Result name_of(const State& s, const char* function, Handle handle, const char** name) {
  if (handle == 0 || name == nullptr) return kInvalidValue;
  const auto found = s.function_names.find(handle);
  if (found == s.function_names.end()) misuse(function, "with a handle that is no function");
  *name = found->second.c_str();
  return kSuccess;
}

}  // namespace

FAKECUDA_EXPORT Result cuGraphGetNodes(Handle graph, Handle* nodes, std::size_t* count) {
  return call({__func__}, [&] { return list_nodes(state(), graph, nodes, count); });
}

FAKECUDA_EXPORT Result cuGraphGetEdges(Handle graph, Handle* from, Handle* to, std::size_t* count) {
  return call({__func__}, [&] { return list_edges(state(), graph, from, to, nullptr, count); });
}

FAKECUDA_EXPORT Result cuGraphGetEdges_v2(Handle graph, Handle* from, Handle* to, EdgeData* data,
                                          std::size_t* count) {
  return call({__func__}, [&] { return list_edges(state(), graph, from, to, data, count); });
}

FAKECUDA_EXPORT Result cuGraphNodeGetType(Handle handle, int* type) {
  return call({__func__}, [&]() -> Result {
    const Node* node = find_node(state(), handle);
    if (node == nullptr || type == nullptr) return kInvalidValue;
    *type = node->type;
    return kSuccess;
  });
}

// No driver that was recorded has these two, so they are exported under names of the fake's.
FAKECUDA_EXPORT Result fakecuda_tell_node_id(Handle node, unsigned long long* id) {
  return call({"cuGraphNodeGetToolsId"}, [&] { return number_of_node(state(), node, id); });
}

FAKECUDA_EXPORT Result fakecuda_tell_exec_id(Handle exec, unsigned* id) {
  return call({"cuGraphExecGetId"}, [&] { return number_of_exec(state(), exec, id); });
}

FAKECUDA_EXPORT Result cuGraphKernelNodeGetParams_v2(Handle node, KernelParams* out) {
  return call({__func__, InChild::kAnswersSuccess},
              [&] { return tell(node, kNodeKernel, out, kernel_params); });
}

FAKECUDA_EXPORT Result cuGraphMemcpyNodeGetParams(Handle node, CopyParams* out) {
  return call({__func__}, [&] { return tell(node, kNodeMemcpy, out, copy_params); });
}

FAKECUDA_EXPORT Result cuGraphMemsetNodeGetParams(Handle node, MemsetParams* out) {
  return call({__func__}, [&] { return tell(node, kNodeMemset, out, memset_params); });
}

FAKECUDA_EXPORT Result cuGraphEventRecordNodeGetEvent(Handle node, Handle* out) {
  return call({__func__}, [&] {
    return tell(node, kNodeEventRecord, out, [](const Node& one) { return one.event_handle; });
  });
}

FAKECUDA_EXPORT Result cuGraphChildGraphNodeGetGraph(Handle node, Handle* out) {
  return call({__func__}, [&] {
    return tell(node, kNodeGraph, out, [](const Node& one) { return one.child->handle; });
  });
}

FAKECUDA_EXPORT Result cuGraphMemAllocNodeGetParams(Handle node, MemAllocParams* out) {
  return call({__func__}, [&] {
    return tell(node, kNodeMemAlloc, out,
                [](const Node& one) { return alloc_params(state(), one); });
  });
}

FAKECUDA_EXPORT Result cuFuncGetName(const char** name, Handle handle) {
  return call({__func__}, [&](const char* function) -> Result {
    if (state().device_fault != kSuccess) return state().device_fault;
    return name_of(state(), function, handle, name);
  });
}

FAKECUDA_EXPORT Result cuKernelGetName(const char** name, Handle handle) {
  return call({__func__},
              [&](const char* function) { return name_of(state(), function, handle, name); });
}
