// Nodes and paths as the public face shows them.
#pragma once

#include <string>
#include <vector>

#include "gpuprof/nodes.hpp"
#include "graphs/nodes.hpp"
#include "timing/path.hpp"

namespace gpuprof::api {

// The names in a path, outermost first.
[[nodiscard]] std::vector<std::string> names_of(const timing::Path& path);

[[nodiscard]] std::vector<GraphNode> public_nodes(const std::vector<graphs::Node>& nodes);

}  // namespace gpuprof::api
