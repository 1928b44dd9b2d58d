// The driver's handles inside this component; other headers hold them as void pointers.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "driver/cuda_table.hpp"

namespace gpuprof::graphs {

using driver::refuse;

inline CUgraph as_graph(void* handle) noexcept { return static_cast<CUgraph>(handle); }
inline CUgraphExec as_exec(void* handle) noexcept { return static_cast<CUgraphExec>(handle); }
inline CUgraphNode as_node(void* handle) noexcept { return static_cast<CUgraphNode>(handle); }

// A node's type as a number: a newer driver has types that our headers' enumeration cannot hold.
inline CUresult type_of(const driver::Table& table, CUgraphNode node, int& type) noexcept {
  CUgraphNodeType written = CU_GRAPH_NODE_TYPE_EMPTY;
  const CUresult status = table.cuGraphNodeGetType(node, &written);
  static_assert(sizeof written == sizeof type);
  std::memcpy(&type, &written, sizeof type);
  return status;
}

// Without the nodes of child graphs.
inline std::size_t count_nodes(const driver::Table& table, CUgraph graph) {
  std::size_t count = 0;
  driver::check(table.cuGraphGetNodes(graph, nullptr, &count), "cuGraphGetNodes");
  return count;
}

// In the order in which they were captured or added.
inline std::vector<CUgraphNode> nodes_of(const driver::Table& table, CUgraph graph) {
  std::size_t count = count_nodes(table, graph);
  std::vector<CUgraphNode> nodes(count);
  if (count == 0) return nodes;
  driver::check(table.cuGraphGetNodes(graph, nodes.data(), &count), "cuGraphGetNodes");
  nodes.resize(std::min(count, nodes.size()));
  return nodes;
}

// The name of the kernel that a node runs; empty for other nodes, and where the driver fails.
std::string kernel_of(const driver::Table& table, CUgraphNode node);

// The newest kernel of the graph, which has `count` nodes, if it is among the last ones. A capture
// appends its nodes.
std::string newest_kernel(const driver::Table& table, CUgraph graph, std::size_t count);

}  // namespace gpuprof::graphs
