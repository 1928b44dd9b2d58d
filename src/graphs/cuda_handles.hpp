// The driver's handles inside this component; other headers hold them as void pointers.
#pragma once

#include <cuda.h>

#include <cstring>

#include "driver/cuda_table.hpp"

namespace gpuprof::graphs {

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

}  // namespace gpuprof::graphs
