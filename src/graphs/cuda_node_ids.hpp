// The numbers by which CUPTI, and so every profiler, names the nodes of a replay.
//
// A node's number is 64 bits: the upper half names its graph, the lower half the node in it. The
// records of a replay show the number of the executable graph in the upper half. Drivers from CUDA
// 13.1 on tell both; before, CUPTI does, once its library is in the process. Errors are
// driver::Error; kInvalidState where nothing here can tell the numbers, with what is missing. Any
// thread.
#pragma once

#include <cstdint>

#include "timing/path.hpp"

namespace gpuprof::graphs {

struct LabelledNode {
  std::uint64_t id = 0;  // as records of replays show it
  const timing::Path* scope = nullptr;
};

// Functions of CUPTI: cuptiGetGraphNodeId and cuptiGetGraphExecId. They return 0 for success.
struct NodeIdFunctions {
  int (*of_node)(void* node, std::uint64_t* id) = nullptr;
  int (*of_exec)(void* exec, std::uint32_t* id) = nullptr;
};

// For whoever loads CUPTI. They count where the driver tells no numbers; both or neither.
void set_node_ids(const NodeIdFunctions& functions) noexcept;

[[nodiscard]] std::uint64_t id_of_node(void* node);
[[nodiscard]] std::uint32_t id_of_exec(void* exec);

// A node's number in the records of replays of an executable graph.
[[nodiscard]] constexpr std::uint64_t in_exec(std::uint64_t node, std::uint32_t exec) noexcept {
  return (std::uint64_t{exec} << 32U) | (node & 0xFFFFFFFFU);
}

}  // namespace gpuprof::graphs
