/// @file
/// What a CUDA graph is made of, as plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpuprof/graph_types.hpp"

GPUPROF_BEGIN_NAMESPACE

/// x, y and z.
using Extent = std::array<unsigned, 3>;

/// One node of a graph: a copy of what the driver said when it was read.
///
/// A field that does not apply to the node's type is empty, as are all of them where the driver
/// does not tell what a node does. Nodes are named by their index in their own graph.
struct GraphNode {
  std::size_t index = 0;  ///< its place in the driver's list
  NodeType type = NodeType::kEmpty;
  std::string name;                            ///< of a kernel, as written in C++
  std::string symbol;                          ///< of a kernel, as the driver has it
  std::optional<Extent> grid;                  ///< blocks of a kernel's grid
  std::optional<Extent> block;                 ///< threads of a kernel's block
  std::optional<std::uint64_t> shared_memory;  ///< bytes of dynamic shared memory of a block
  std::optional<std::uint64_t> nbytes;         ///< bytes that are copied, set or allocated
  std::optional<std::uint32_t> value;          ///< what a memset sets each element to
  std::optional<unsigned> element_size;        ///< bytes of one element of a memset: 1, 2 or 4
  std::vector<std::size_t> dependencies;       ///< the nodes that this one waits for
  std::vector<std::size_t> programmatic;       ///< those that need not be over when it starts
  std::vector<std::size_t> dependents;         ///< the nodes that wait for this one
  std::vector<GraphNode> children;             ///< the nodes of a child graph
  /// The path of the innermost scope that was open when the node was captured, such as
  /// "step/forward"; empty outside of all scopes.
  std::string scope;
  std::vector<std::string> scope_names;  ///< the names in that path, outermost first
};

/// The name of a type: "kernel", "memcpy", "event_record"; "type_N" for one that is not known.
[[nodiscard]] std::string node_type_name(NodeType type);

/// A node on one line: "node 3 add_k grid (8,1,1) block (256,1,1) in step/forward".
[[nodiscard]] std::string to_string(const GraphNode& node);

/// The names of the kernels in the order in which they can run, child graphs' where their graph
/// stands. A kernel whose name the driver does not tell is an empty text.
[[nodiscard]] std::vector<std::string> kernel_names(const std::vector<GraphNode>& nodes);

/// A graph in the language of Graphviz: child graphs are clusters, programmatic edges are dashed.
[[nodiscard]] std::string to_dot(const std::vector<GraphNode>& nodes,
                                 const std::string& name = "graph");

GPUPROF_END_NAMESPACE
