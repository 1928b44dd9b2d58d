// Nodes as plain data: names, order, and the picture. No driver is needed.
#include "gpuprof/nodes.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/driver_errors.hpp"

namespace gpuprof::tests {
namespace {

GraphNode node(std::size_t index, const std::string& name, std::vector<std::size_t> after = {}) {
  GraphNode made;
  made.index = index;
  made.type = name.empty() ? NodeType::kMemset : NodeType::kKernel;
  made.name = made.symbol = name;
  made.dependencies = std::move(after);
  return made;
}

std::vector<GraphNode> linked(std::vector<GraphNode> nodes) {
  for (const GraphNode& each : nodes) {
    for (const std::size_t before : each.dependencies) {
      nodes[before].dependents.push_back(each.index);
    }
  }
  return nodes;
}

TEST(PublicNodes, TypesHaveNames) {
  EXPECT_EQ(node_type_name(NodeType::kKernel), "kernel");
  EXPECT_EQ(node_type_name(NodeType::kBatchMemOp), "batch_mem_op");
  EXPECT_EQ(node_type_name(static_cast<NodeType>(99)), "type_99");
}

TEST(PublicNodes, KernelsAreNamedInTheOrderInWhichTheyCanRun) {
  GraphNode child = node(1, "", {2});
  child.type = NodeType::kGraph;
  child.children = {node(0, "inner")};
  EXPECT_EQ(kernel_names(linked({node(0, "last", {1}), child, node(2, "first")})),
            (std::vector<std::string>{"first", "inner", "last"}));
  EXPECT_TRUE(kernel_names({}).empty());
}

TEST(PublicNodes, AKernelIsShownByWhatTellsItFromOthers) {
  EXPECT_EQ(to_string(node(0, "void at::add<float, 4>(float*, int)")), "node 0 at::add<...>");
  EXPECT_EQ(to_string(node(0, "(anonymous namespace)::f(int)")), "node 0 {anonymous}::f");
  EXPECT_EQ(to_string(node(0, "f::{lambda(int)#1}::operator()(int) const")),
            "node 0 f::{lambda(int)#1}::operator");
  EXPECT_EQ(to_string(node(0, "(weird)")), "node 0 (weird)");
  const std::string cut = to_string(node(0, std::string(100, 'x')));
  EXPECT_EQ(cut, "node 0 " + std::string(39, 'x') + "\xE2\x80\xA6" + std::string(20, 'x'));
}

TEST(PublicNodes, WhateverANameHoldsIsShownOnOneLineAndAsValidText) {
  EXPECT_EQ(to_string(node(0, "a\nb\x1b\x7f")), "node 0 a\\x0ab\\x1b\\x7f");
  EXPECT_EQ(to_string(node(0, std::string("a\0b", 3))),
            "node 0 a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(to_string(node(0, "a\xFF\xC3")), "node 0 a\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(to_string(node(0,
                           "\xE2\x80\xAE"
                           "a")),
            "node 0 \\u202ea");
  EXPECT_EQ(to_string(node(0, "\xC3\xA4")), "node 0 \xC3\xA4");
}

TEST(PublicNodes, DotHasANodeAndAnEdgeEach) {
  std::vector<GraphNode> nodes = linked({node(0, "add\"k"), node(1, "", {0}), node(2, "<b>", {0})});
  nodes[1].nbytes = 4096;
  nodes[1].value = 0;
  nodes[1].scope = "step";
  nodes[2].programmatic = {0};
  EXPECT_EQ(to_dot(nodes, "a & b"),
            "digraph \"a &amp; b\" {\n"
            "  label=\"a &amp; b\";\n"
            "  node [fontname=\"Helvetica\", fontsize=10, style=filled];\n"
            "  n0 [label=\"0 add\\\"k\", shape=box, fillcolor=\"#cfe8cf\", tooltip=\"add\\\"k\"];\n"
            "  n1 [label=\"1 memset\\n4.0 KiB\\nvalue 0x0\\nstep\", shape=cds, "
            "fillcolor=\"#dfe8f5\", tooltip=\"memset\"];\n"
            "  n2 [label=\"2 &lt;...&gt;\", shape=box, fillcolor=\"#cfe8cf\", "
            "tooltip=\"&lt;b&gt;\"];\n"
            "  n0 -> n1;\n"
            "  n0 -> n2 [style=dashed];\n"
            "}\n");
}

TEST(PublicNodes, ChildGraphsAreClusters) {
  GraphNode child = node(0, "");
  child.type = NodeType::kGraph;
  child.children = linked({node(0, "f"), node(1, "g", {0})});
  const std::string dot = to_dot({child});
  EXPECT_TRUE(contains(dot, "  subgraph cluster_n0 {\n    label=\"child graph of node 0\";\n"))
      << dot;
  EXPECT_TRUE(contains(dot, "    n0_0 -> n0_1;\n    n0 -> n0_0 [style=dotted];\n  }\n")) << dot;
  EXPECT_TRUE(contains(dot, "2 nodes")) << dot;
}

}  // namespace
}  // namespace gpuprof::tests
