#include <string>
#include <vector>

#include "graphs/nodes.hpp"

namespace gpuprof::graphs {
namespace {

// Edges come sorted by the node at their other end, which several of them may share.
void add_once(std::vector<std::size_t>& indices, std::size_t index) {
  if (indices.empty() || indices.back() != index) indices.push_back(index);
}

}  // namespace

std::vector<NodeLinks> links_of(const std::vector<Node>& nodes) {
  std::vector<NodeLinks> links(nodes.size());
  for (std::size_t to = 0; to < nodes.size(); ++to) {
    for (const Edge& edge : nodes[to].incoming) {
      add_once(links[to].dependencies, edge.from);
      if (!edge.is_full()) add_once(links[to].programmatic, edge.from);
      add_once(links[edge.from].dependents, to);
    }
  }
  return links;
}

std::string node_type_name(NodeType type) {
  switch (type) {
    case NodeType::kKernel:
      return "kernel";
    case NodeType::kMemcpy:
      return "memcpy";
    case NodeType::kMemset:
      return "memset";
    case NodeType::kHost:
      return "host";
    case NodeType::kGraph:
      return "graph";
    case NodeType::kEmpty:
      return "empty";
    case NodeType::kEventWait:
      return "event_wait";
    case NodeType::kEventRecord:
      return "event_record";
    case NodeType::kSemaphoreSignal:
      return "semaphore_signal";
    case NodeType::kSemaphoreWait:
      return "semaphore_wait";
    case NodeType::kMemAlloc:
      return "mem_alloc";
    case NodeType::kMemFree:
      return "mem_free";
    case NodeType::kBatchMemOp:
      return "batch_mem_op";
    case NodeType::kConditional:
      return "conditional";
  }
  return "type_" + std::to_string(static_cast<int>(type));
}

}  // namespace gpuprof::graphs
