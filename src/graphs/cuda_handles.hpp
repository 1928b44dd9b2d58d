// The driver's handles inside this component: other headers hold them as plain pointers.
#pragma once

#include <cuda.h>

namespace gpuprof::graphs {

inline CUgraph as_graph(void* handle) noexcept { return static_cast<CUgraph>(handle); }
inline CUgraphExec as_exec(void* handle) noexcept { return static_cast<CUgraphExec>(handle); }
inline CUgraphNode as_node(void* handle) noexcept { return static_cast<CUgraphNode>(handle); }

}  // namespace gpuprof::graphs
