#include <algorithm>
#include <tuple>

#include "driver/cuda_table.hpp"
#include "graphs/cuda_handles.hpp"
#include "graphs/nodes.hpp"

namespace gpuprof::graphs {
namespace {

using driver::check;
using driver::Table;

// Child graphs cannot contain themselves; frameworks nest them once or twice.
constexpr int kMaxDepth = 32;

constexpr std::size_t kNewest = 64;  // how many nodes are searched for a kernel

// Before CUDA 12.3 edges have no data, and the older form leaves `data` as it is.
CUresult get_edges(const Table& table, CUgraph graph, CUgraphNode* from, CUgraphNode* to,
                   CUgraphEdgeData* data, std::size_t* count) {
  const CUresult status = table.cuGraphGetEdges(graph, from, to, data, count);
  if (status != driver::kMissingEntry) return status;
  return table.cuGraphGetEdges_v10000(graph, from, to, count);
}

std::vector<Edge> edges_of(const Table& table, CUgraph graph,
                           const std::vector<CUgraphNode>& handles) {
  std::size_t count = 0;
  check(get_edges(table, graph, nullptr, nullptr, nullptr, &count), "cuGraphGetEdges");
  if (count == 0) return {};
  std::vector<CUgraphNode> from(count);
  std::vector<CUgraphNode> to(count);
  std::vector<CUgraphEdgeData> data(count);
  check(get_edges(table, graph, from.data(), to.data(), data.data(), &count), "cuGraphGetEdges");
  std::unordered_map<CUgraphNode, std::size_t> known;
  known.reserve(handles.size());
  for (std::size_t i = 0; i < handles.size(); ++i) known.emplace(handles[i], i);
  const auto index = [&known](CUgraphNode handle) {
    const auto found = known.find(handle);
    if (found != known.end()) return found->second;
    refuse("the graph was changed by another thread while its edges were read");
  };
  std::vector<Edge> edges;
  edges.reserve(count);
  for (std::size_t i = 0; i < std::min(count, from.size()); ++i) {
    edges.push_back(
        {index(from[i]), index(to[i]), data[i].from_port, data[i].to_port, data[i].type});
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    return std::tie(a.from, a.to, a.from_port, a.to_port, a.type) <
           std::tie(b.from, b.to, b.from_port, b.to_port, b.type);
  });
  return edges;
}

// Reads the details of one graph's nodes.
class Reader {
 public:
  Reader(const Table& table, const NodeLabels& labels) noexcept : table_(table), labels_(labels) {}

  // `scope` is that of the node which the graph is in.
  [[nodiscard]] std::vector<Node> nodes(CUgraph graph, int depth, const timing::Path* scope) const {
    const std::vector<CUgraphNode> handles = nodes_of(table_, graph);
    std::vector<Node> nodes(handles.size());
    for (std::size_t i = 0; i < handles.size(); ++i) {
      const auto label = labels_.find(handles[i]);
      nodes[i].scope = label != labels_.end() ? label->second : scope;
      read(handles[i], depth, nodes[i]);
    }
    for (const Edge& edge : edges_of(table_, graph, handles)) {
      nodes[edge.to].incoming.push_back(edge);
    }
    return nodes;
  }

 private:
  void read(CUgraphNode handle, int depth, Node& node) const {
    int type = 0;
    check(type_of(table_, handle, type), "cuGraphNodeGetType");
    node.type = static_cast<NodeType>(type);
    if (node.type == NodeType::kKernel) read_kernel(handle, node);
    if (node.type == NodeType::kMemcpy) read_copy(handle, node);
    if (node.type == NodeType::kMemset) read_memset(handle, node);
    if (node.type == NodeType::kMemAlloc) read_allocation(handle, node);
    if (node.type == NodeType::kGraph) read_child(handle, depth, node);
  }

  // Whether a query succeeded. A refused one does not fail the walk, a dead driver does.
  static bool told(CUresult status, const char* call) {
    if (status == CUDA_SUCCESS) return true;
    if (status == driver::kMissingEntry) return false;
    const driver::Error error = driver::error_of(status, call);  // detects a dead driver
    if (driver::is_blocked()) throw error;
    return false;
  }

  void read_kernel(CUgraphNode handle, Node& node) const {
    CUDA_KERNEL_NODE_PARAMS params{};
    node.has_details =
        told(table_.cuGraphKernelNodeGetParams(handle, &params), "cuGraphKernelNodeGetParams");
    if (!node.has_details) return;
    node.grid = {params.gridDimX, params.gridDimY, params.gridDimZ};
    node.block = {params.blockDimX, params.blockDimY, params.blockDimZ};
    node.nbytes = params.sharedMemBytes;
    const char* name = nullptr;
    const bool named =
        params.func != nullptr
            ? told(table_.cuFuncGetName(&name, params.func), "cuFuncGetName")
            : params.kern != nullptr &&
                  told(table_.cuKernelGetName(&name, params.kern), "cuKernelGetName");
    if (named && name != nullptr) node.kernel = name;
  }

  void read_copy(CUgraphNode handle, Node& node) const {
    CUDA_MEMCPY3D copy;  // has no empty value
    node.has_details =
        told(table_.cuGraphMemcpyNodeGetParams(handle, &copy), "cuGraphMemcpyNodeGetParams");
    if (!node.has_details) return;
    node.nbytes = std::uint64_t{copy.WidthInBytes} * std::max<std::size_t>(copy.Height, 1) *
                  std::max<std::size_t>(copy.Depth, 1);
  }

  void read_memset(CUgraphNode handle, Node& node) const {
    CUDA_MEMSET_NODE_PARAMS_v1 memset{};
    node.has_details =
        told(table_.cuGraphMemsetNodeGetParams(handle, &memset), "cuGraphMemsetNodeGetParams");
    if (!node.has_details) return;
    node.nbytes =
        std::uint64_t{memset.elementSize} * memset.width * std::max<std::size_t>(memset.height, 1);
    node.value = memset.value;
    node.element_size = memset.elementSize;
  }

  void read_allocation(CUgraphNode handle, Node& node) const {
    CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
    node.has_details = told(table_.cuGraphMemAllocNodeGetParams(handle, &allocation),
                            "cuGraphMemAllocNodeGetParams");
    if (node.has_details) node.nbytes = allocation.bytesize;
  }

  void read_child(CUgraphNode handle, int depth, Node& node) const {
    CUgraph child = nullptr;
    if (depth >= kMaxDepth) return;
    node.has_details = told(table_.cuGraphChildGraphNodeGetGraph(handle, &child),
                            "cuGraphChildGraphNodeGetGraph") &&
                       child != nullptr;
    if (node.has_details) node.children = nodes(child, depth + 1, node.scope);
  }

  const Table& table_;
  const NodeLabels& labels_;
};

}  // namespace

std::string kernel_of(const Table& table, CUgraphNode node) {
  int type = 0;
  if (type_of(table, node, type) != CUDA_SUCCESS || type != CU_GRAPH_NODE_TYPE_KERNEL) {
    return {};
  }
  CUDA_KERNEL_NODE_PARAMS params{};
  const char* name = nullptr;
  if (table.cuGraphKernelNodeGetParams(node, &params) != CUDA_SUCCESS) return {};
  const CUresult named = params.func != nullptr ? table.cuFuncGetName(&name, params.func)
                                                : table.cuKernelGetName(&name, params.kern);
  return named == CUDA_SUCCESS && name != nullptr ? name : "";
}

std::string newest_kernel(const Table& table, CUgraph graph, std::size_t count) {
  std::vector<CUgraphNode> nodes(count);
  if (table.cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return {};
  nodes.resize(std::min(count, nodes.size()));
  const std::size_t oldest = nodes.size() > kNewest ? nodes.size() - kNewest : 0;
  for (std::size_t i = nodes.size(); i > oldest; --i) {
    std::string kernel = kernel_of(table, nodes[i - 1]);
    if (!kernel.empty()) return kernel;
  }
  return {};
}

std::vector<Node> walk(void* graph, const NodeLabels& labels) {
  return Reader(driver::ready(), labels).nodes(static_cast<CUgraph>(graph), 0, nullptr);
}

std::vector<Edge> edges(void* graph) {
  const Table& table = driver::ready();
  auto* const handle = static_cast<CUgraph>(graph);
  return edges_of(table, handle, nodes_of(table, handle));
}

}  // namespace gpuprof::graphs
