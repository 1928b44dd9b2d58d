#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpuprof/nodes.hpp"
#include "text/graph_text.hpp"
#include "text/kernel_name.hpp"

GPUPROF_BEGIN_NAMESPACE
namespace {

constexpr std::size_t kMaxTooltip = 500;

struct Style {
  const char* shape;
  const char* colour;
};
constexpr Style kPlain{"ellipse", "#eeeeee"};

// In the order of NodeType.
constexpr std::array<Style, 14> kStyles{{{"box", "#cfe8cf"},
                                         {"cds", "#cfe0f5"},
                                         {"cds", "#dfe8f5"},
                                         {"house", "#f5d9cf"},
                                         {"folder", "#eeeeee"},
                                         {"point", "#000000"},
                                         {"diamond", "#ffe08a"},
                                         {"diamond", "#fff2b3"},
                                         kPlain,
                                         kPlain,
                                         {"cylinder", "#e6d5f2"},
                                         {"cylinder", "#f3ebf8"},
                                         kPlain,
                                         {"hexagon", "#f5cfe0"}}};

Style style_of(NodeType type) noexcept {
  const auto place = static_cast<std::size_t>(type);
  return place < kStyles.size() ? kStyles[place] : kPlain;
}

// Text for a label: in a quoted string, where entities and \N mean something.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : graph_text::shown(text)) {
    if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else {
      if (c == '\\' || c == '"') result += '\\';
      result += c;
    }
  }
  return result;
}

std::string quoted_label(std::string_view text) { return '"' + escaped(text) + '"'; }

std::string node_statement(const GraphNode& node, const std::string& identity) {
  const Style style = style_of(node.type);
  std::string label =
      escaped(std::to_string(node.index) + " " +
              (node.name.empty() ? node_type_name(node.type) : graph_text::short_name(node.name)));
  for (const std::string& line : graph_text::details(node)) label += "\\n" + escaped(line);
  if (!node.scope.empty()) label += "\\n" + escaped(graph_text::scope_text(node));
  const std::string tip = node.name.empty() ? node_type_name(node.type) : node.name;
  return identity + " [label=\"" + label + "\", shape=" + style.shape + ", fillcolor=\"" +
         style.colour +
         "\", tooltip=" + quoted_label(graph_text::cut(graph_text::shown(tip), kMaxTooltip)) + "];";
}

// By the node that they come from, then by that which they lead to, as the driver's edges are.
std::vector<std::pair<std::size_t, const GraphNode*>> sorted_edges(
    const std::vector<GraphNode>& nodes) {
  std::vector<std::pair<std::size_t, const GraphNode*>> edges;
  for (const GraphNode& node : nodes) {
    for (const std::size_t before : node.dependencies) edges.emplace_back(before, &node);
  }
  std::stable_sort(edges.begin(), edges.end(),
                   [](const auto& own, const auto& other) { return own.first < other.first; });
  return edges;
}

class DotWriter {
 public:
  void graph(const std::vector<GraphNode>& nodes, const std::string& prefix, int depth) {
    const std::string indent(static_cast<std::size_t>(2 * depth), ' ');
    for (const GraphNode& node : nodes) this->node(node, prefix, depth);
    for (const auto& [before, node] : sorted_edges(nodes)) {
      const auto& early = node->programmatic;
      const bool dashed = std::find(early.begin(), early.end(), before) != early.end();
      text_.append(indent).append(prefix).append(std::to_string(before)).append(" -> ");
      text_.append(prefix).append(std::to_string(node->index));
      text_.append(dashed ? " [style=dashed];\n" : ";\n");
    }
  }

  void line(const std::string& text) { text_ += text + "\n"; }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  void node(const GraphNode& node, const std::string& prefix, int depth) {
    const std::string indent(static_cast<std::size_t>(2 * depth), ' ');
    const std::string identity = prefix + std::to_string(node.index);
    if (node.children.empty()) {
      line(indent + node_statement(node, identity));
      return;
    }
    line(indent + "subgraph cluster_" + identity + " {");
    line(indent + "  label=" + quoted_label("child graph of node " + std::to_string(node.index)) +
         ";");
    line(indent + "  " + node_statement(node, identity));
    graph(node.children, identity + "_", depth + 1);
    for (const GraphNode& child : node.children) {
      if (!child.dependencies.empty()) continue;
      std::string edge = indent + "  ";
      edge.append(identity).append(" -> ").append(identity).append("_");
      edge.append(std::to_string(child.index)).append(" [style=dotted];");
      line(edge);
    }
    line(indent + "}");
  }

  std::string text_;
};

}  // namespace

std::string to_dot(const std::vector<GraphNode>& nodes, const std::string& name) {
  DotWriter dot;
  dot.line("digraph " + quoted_label(name) + " {");
  dot.line("  label=" + quoted_label(name) + ";");
  dot.line("  node [fontname=\"Helvetica\", fontsize=10, style=filled];");
  dot.graph(nodes, "n", 1);
  dot.line("}");
  return dot.take();
}

GPUPROF_END_NAMESPACE
