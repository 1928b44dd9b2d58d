// What a CUDA graph is made of: its nodes and edges, read from the driver.
//
// A Node is plain data, a copy of what the driver said; sizes are bytes. It says nothing that could
// not be read: a node of a kind that this code does not know, or whose parameters the driver keeps
// to itself, has its type and its dependencies only. Event and node handles are for comparing.
//
// The caller passes a CUgraph that is alive and that nobody changes meanwhile: a stale handle
// crashes the process in the driver. Any thread; nothing is kept between calls. Errors are
// driver::Error.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gpuprof::graphs {

// The driver's numbers; newer drivers have more.
enum class NodeType : int {
  kKernel = 0,
  kMemcpy = 1,
  kMemset = 2,
  kHost = 3,
  kGraph = 4,
  kEmpty = 5,
  kEventWait = 6,
  kEventRecord = 7,
  kSemaphoreSignal = 8,
  kSemaphoreWait = 9,
  kMemAlloc = 10,
  kMemFree = 11,
  kBatchMemOp = 12,
  kConditional = 13,
};

// One node must be done, or with a programmatic edge far enough, before another starts.
// Nodes are indices into the list that walk() returns.
struct Edge {
  std::size_t from = 0;
  std::size_t to = 0;
  std::uint8_t from_port = 0;  // 0: full completion
  std::uint8_t to_port = 0;
  std::uint8_t type = 0;  // 0: default, 1: programmatic dependent launch

  [[nodiscard]] bool is_full() const noexcept {
    return from_port == 0 && to_port == 0 && type == 0;
  }
};

using Extent = std::array<unsigned, 3>;  // x, y, z

struct Node {
  NodeType type = NodeType::kEmpty;
  void* handle = nullptr;      // CUgraphNode
  bool has_details = false;    // whether the driver told what follows
  std::string kernel;          // mangled; empty where the driver does not tell names
  Extent grid{};               // kernels
  Extent block{};              // kernels
  std::uint64_t nbytes = 0;    // dynamic shared memory, or what is copied, set or allocated
  std::uint32_t value = 0;     // memsets: what each element is set to
  unsigned element_size = 0;   // memsets: 1, 2 or 4
  void* event = nullptr;       // event nodes: CUevent
  std::vector<Edge> incoming;  // by the node they come from
  std::vector<Node> children;  // of child graphs
};

// The nodes in the driver's order, child graphs' below theirs.
[[nodiscard]] std::vector<Node> walk(void* graph);

// The edges by the node that they leave, then by the one that they enter.
[[nodiscard]] std::vector<Edge> edges(void* graph);

// How many nodes there are; those of child graphs do not count.
[[nodiscard]] std::size_t count_nodes(void* graph);

}  // namespace gpuprof::graphs
