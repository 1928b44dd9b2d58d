#include "text/graph_nodes.hpp"

#include <array>
#include <charconv>
#include <unordered_map>
#include <utility>

#include "text/graph_text.hpp"
#include "text/kernel_name.hpp"

GPUPROF_BEGIN_NAMESPACE
namespace {

constexpr std::array<const char*, 14> kTypeNames{
    "kernel",       "memcpy",       "memset",           "host",           "graph",     "empty",
    "event_wait",   "event_record", "semaphore_signal", "semaphore_wait", "mem_alloc", "mem_free",
    "batch_mem_op", "conditional",
};
constexpr std::string_view kUnknownType = "type_";

void add_details(const graphs::Node& node, GraphNode& result) {
  if (node.type == NodeType::kKernel) {
    result.grid = node.grid;
    result.block = node.block;
    result.shared_memory = node.nbytes;
    return;
  }
  if (node.type == NodeType::kMemset) {
    result.value = node.value;
    result.element_size = node.element_size;
  }
  if (node.type != NodeType::kGraph) result.nbytes = node.nbytes;
}

// Edges come sorted by the node at their other end, which several of them may share.
void add_once(std::vector<std::size_t>& indices, std::size_t index) {
  if (indices.empty() || indices.back() != index) indices.push_back(index);
}

// Graphs launch few kernels many times, so names are made once.
class NodeMaker {
 public:
  std::vector<GraphNode> nodes(const std::vector<graphs::Node>& nodes) {
    std::vector<GraphNode> result(nodes.size());
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      fill(nodes[i], result[i]);
      result[i].index = i;
      for (const graphs::Edge& edge : nodes[i].incoming) {
        add_once(result[i].dependencies, edge.from);
        if (!edge.is_full()) add_once(result[i].programmatic, edge.from);
        add_once(result[edge.from].dependents, i);
      }
    }
    return result;
  }

 private:
  void fill(const graphs::Node& node, GraphNode& result) {
    result.type = node.type;
    result.symbol = node.kernel;
    result.name = name_of(node.kernel);
    result.children = nodes(node.children);
    if (node.has_details) add_details(node, result);
    if (node.scope == nullptr) return;
    result.scope = node.scope->text;
    result.scope_names = graph_text::names_of(*node.scope);
  }

  const std::string& name_of(const std::string& symbol) {
    const auto found = names_.find(symbol);
    if (found != names_.end()) return found->second;
    return names_.emplace(symbol, graph_text::demangled(symbol)).first->second;
  }

  std::unordered_map<std::string, std::string> names_;
};

void add_kernel_names(const std::vector<GraphNode>& nodes, std::vector<std::string>& names) {
  for (const std::size_t index : graph_text::in_order(nodes)) {
    const GraphNode& node = nodes[index];
    if (node.type == NodeType::kKernel) names.push_back(node.name);
    add_kernel_names(node.children, names);
  }
}

}  // namespace
GPUPROF_END_NAMESPACE

namespace gpuprof::graph_text {

std::vector<std::string> names_of(const timing::Path& path) {
  std::vector<std::string> names;
  for (const timing::Path* each : timing::lineage(path)) names.push_back(each->name);
  return names;
}

std::vector<GraphNode> public_nodes(const std::vector<graphs::Node>& nodes) {
  return NodeMaker().nodes(nodes);
}

std::optional<NodeType> node_type(std::string_view name) {
  for (std::size_t i = 0; i < kTypeNames.size(); ++i) {
    if (name == kTypeNames[i]) return static_cast<NodeType>(i);
  }
  if (name.substr(0, kUnknownType.size()) != kUnknownType) return std::nullopt;
  int number = 0;
  const char* const end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + kUnknownType.size(), end, number);
  if (read.ec != std::errc{} || read.ptr != end) return std::nullopt;
  return static_cast<NodeType>(number);
}

}  // namespace gpuprof::graph_text

GPUPROF_BEGIN_NAMESPACE

std::string node_type_name(NodeType type) {
  const int number = static_cast<int>(type);
  if (number >= 0 && static_cast<std::size_t>(number) < kTypeNames.size()) {
    return kTypeNames[static_cast<std::size_t>(number)];
  }
  return std::string(kUnknownType) + std::to_string(number);
}

std::string to_string(const GraphNode& node) {
  std::string text = graph_text::title(node);
  for (const std::string& detail : graph_text::details(node)) text += " " + detail;
  return node.scope.empty() ? text : text + " in " + graph_text::scope_text(node);
}

std::vector<std::string> kernel_names(const std::vector<GraphNode>& nodes) {
  std::vector<std::string> names;
  add_kernel_names(nodes, names);
  return names;
}

GPUPROF_END_NAMESPACE
