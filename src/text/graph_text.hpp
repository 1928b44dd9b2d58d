// Graphs in words, for people: short names, a node on one line, why an update was refused.
//
// Names are shown as in kernel_name.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpuprof/nodes.hpp"

namespace gpuprof::graph_text {

// "node 3 add_k".
[[nodiscard]] std::string title(const GraphNode& node);

// What a node does besides its type and name: "grid (8,1,1) block (256,1,1)", "4.0 KiB".
[[nodiscard]] std::vector<std::string> details(const GraphNode& node);

// The scope that a node was captured in; empty outside of all scopes.
[[nodiscard]] std::string scope_text(const GraphNode& node);

// Both kernels' names in the shortest form in which they differ.
[[nodiscard]] std::pair<std::string, std::string> telling_names(const GraphNode& own,
                                                                const GraphNode& other);

// How two nodes differ: "grid (1,1,1) -> (2,1,1)"; empty where nothing that can be shown does.
[[nodiscard]] std::string changes(const GraphNode& own, const GraphNode& other);

// "2,000".
[[nodiscard]] std::string grouped(std::uint64_t number);

// "1 node", "2,000 nodes".
[[nodiscard]] std::string plural(std::size_t count, const std::string& what);

// Lines of cells as a table: the first line is the head, and a column without text below it is left
// out. These columns stand to the left.
[[nodiscard]] std::string table(const std::vector<std::vector<std::string>>& lines,
                                const std::set<std::size_t>& to_left = {0});

// A name in quotes, as errors show it.
[[nodiscard]] std::string quoted(const std::string& name);

// The nodes with each one behind those that it waits for, and else in the driver's order.
[[nodiscard]] std::vector<std::size_t> in_order(const std::vector<GraphNode>& nodes);

// Why a graph could not be updated: a CUgraphExecUpdateResult and the nodes that it is about, -1
// for none.
[[nodiscard]] std::string update_reason(int result, const std::vector<GraphNode>& own,
                                        std::ptrdiff_t own_index,
                                        const std::vector<GraphNode>& other,
                                        std::ptrdiff_t other_index);

}  // namespace gpuprof::graph_text
