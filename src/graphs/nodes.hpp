// What a CUDA graph is made of: its nodes and edges, read from the driver.
//
// A Node is a plain copy of what the driver said; sizes are bytes. A node of an unknown type, or
// whose parameters the driver does not tell, has only its type and dependencies.
//
// The CUgraph must be alive and unchanged during the call: a stale handle crashes in the driver.
// Any thread. Errors are driver::Error.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "gpuprof/graph_types.hpp"
#include "timing/path.hpp"

namespace gpuprof::graphs {

using gpuprof::NodeType;

// A dependency: `to` starts after `from` is done, or far enough with a programmatic edge. Nodes are
// indices into the list that walk() returns.
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

// The innermost scope in which a node was captured, by its handle. Nodes outside of all scopes are
// left out. Paths live as long as the process.
using NodeLabels = std::unordered_map<void*, const timing::Path*>;

using Extent = std::array<unsigned, 3>;  // x, y, z

struct Node {
  NodeType type = NodeType::kEmpty;
  const timing::Path* scope = nullptr;
  bool has_details = false;    // whether what follows is known
  std::string kernel;          // mangled; empty where the driver tells no names
  Extent grid{};               // kernels
  Extent block{};              // kernels
  std::uint64_t nbytes = 0;    // dynamic shared memory, or what is copied, set or allocated
  std::uint32_t value = 0;     // memsets: what each element is set to
  unsigned element_size = 0;   // memsets: 1, 2 or 4
  std::vector<Edge> incoming;  // by the node they come from
  std::vector<Node> children;  // of child graphs
};

// The nodes in the driver's order, child graphs' below theirs. Without a label of its own, a child
// graph's node has that of the node it is in.
[[nodiscard]] std::vector<Node> walk(void* graph, const NodeLabels& labels = {});

// All edges, sorted by `from`, then by `to`.
[[nodiscard]] std::vector<Edge> edges(void* graph);

}  // namespace gpuprof::graphs
