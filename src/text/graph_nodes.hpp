// Nodes and paths as users see them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpuprof/nodes.hpp"
#include "graphs/nodes.hpp"
#include "timing/path.hpp"

namespace gpuprof::graph_text {

// The names in a path, outermost first.
[[nodiscard]] std::vector<std::string> names_of(const timing::Path& path);

[[nodiscard]] std::vector<GraphNode> public_nodes(const std::vector<graphs::Node>& nodes);

// The type with this name; see node_type_name.
[[nodiscard]] std::optional<NodeType> node_type(std::string_view name);

}  // namespace gpuprof::graph_text
