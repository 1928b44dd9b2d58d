#include "graph.hpp"

#include <algorithm>
#include <cstdlib>

#include "copies.hpp"
#include "objects.hpp"
#include "time.hpp"

namespace fakecuda {
namespace {

void append_in_order(const Graph& graph, int node, std::vector<bool>& seen,
                     std::vector<int>& order) {
  const auto index = static_cast<std::size_t>(node);
  if (seen[index]) return;
  seen[index] = true;
  for (const int before : graph.nodes[index].after) append_in_order(graph, before, seen, order);
  order.push_back(node);
}

// As they are listed, but each after those that it comes after: a later edge may lead back.
std::vector<int> in_order(const Graph& graph) {
  std::vector<int> order;
  std::vector<bool> seen(graph.nodes.size(), false);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    append_in_order(graph, static_cast<int>(i), seen, order);
  }
  return order;
}

void flatten(const Graph& graph, const std::vector<int>& before, std::vector<Node>& flat) {
  std::vector<int> place(graph.nodes.size(), 0);
  for (const int listed : in_order(graph)) {
    const Node& node = graph.nodes[static_cast<std::size_t>(listed)];
    Node copy = node;
    copy.after.clear();
    for (const int index : node.after) copy.after.push_back(place[static_cast<std::size_t>(index)]);
    if (node.after.empty()) copy.after = before;
    if (node.child) {
      const std::size_t first = flat.size();
      flatten(*node.child, copy.after, flat);
      for (std::size_t i = first; i < flat.size(); ++i) copy.after.push_back(static_cast<int>(i));
    }
    place[static_cast<std::size_t>(listed)] = static_cast<int>(flat.size());
    flat.push_back(std::move(copy));
  }
}

// The driver never says where an edge in the way comes from.
UpdateInfo refusal(UpdateResult result, Handle node = 0) { return {result, node, 0}; }

UpdateInfo compare_nodes(const State& s, const Node& own, const Node& other) {
  if (own.after != other.after) return refusal(kUpdateTopologyChanged, other.handle);
  if (own.type != other.type) return refusal(kUpdateNodeTypeChanged, other.handle);
  // The driver looks now at whose memory it is: what is freed is nobody's.
  if (own.type == kNodeMemcpy && !can_become(own, copy_node(s, other.op))) {
    return refusal(kUpdateParametersChanged, other.handle);
  }
  if (own.child) return compare(s, own.child->nodes, other.child->nodes);
  return {};
}

void give_up(State& s, GraphExec& exec) {
  s.memory_used -= exec.memory;
  exec.memory = 0;
}

void free_unwanted_memory(State& s) {
  for (auto it = s.memory.begin(); it != s.memory.end();) {
    const Allocation& one = it->second;
    if (!one.of_graph || one.mapped || !one.users.expired()) {
      ++it;
      continue;
    }
    --s.graph_allocations;
    std::free(reinterpret_cast<void*>(it->first));
    it = s.memory.erase(it);
  }
}

}  // namespace

std::shared_ptr<Graph> make_graph(State& s, const char* function) {
  auto graph = std::make_shared<Graph>();
  graph->handle = new_handle(Kind::kGraph);
  graph->id = s.next_graph_id++;
  graph->label = new_label(function);
  s.graphs[graph->handle] = graph;
  return graph;
}

void forget_graph(State& s, Graph& graph) {
  for (Node& node : graph.nodes) {
    s.nodes.erase(node.handle);
    // An executable copy may still want the graph inside this node.
    if (node.child) forget_graph(s, *node.child);
  }
  s.graphs.erase(graph.handle);
}

void list_node(State& s, Graph& graph, Node node) {
  node.handle = new_handle(Kind::kNode);
  s.nodes[node.handle] = {graph.handle, static_cast<int>(graph.nodes.size())};
  graph.nodes.push_back(std::move(node));
}

std::shared_ptr<Graph> clone_into_node(State& s, const Graph& graph) {
  auto clone = make_graph(s, "cuGraphAddChildGraphNode");
  clone->embedded = true;
  for (const Node& node : graph.nodes) {
    Node copy = node;
    if (node.child) copy.child = clone_into_node(s, *node.child);
    list_node(s, *clone, std::move(copy));
  }
  return clone;
}

const Node* find_node(const State& s, Handle handle) {
  const auto found = s.nodes.find(handle);
  if (found == s.nodes.end()) return nullptr;
  const auto graph = find_graph(s, found->second.first);
  return graph ? &graph->nodes[static_cast<std::size_t>(found->second.second)] : nullptr;
}

const Node* find_node(const State& s, Handle handle, NodeType type) {
  const Node* node = find_node(s, handle);
  return node != nullptr && node->type == type ? node : nullptr;
}

bool is_circular(const Graph& graph) {
  std::vector<bool> seen(graph.nodes.size(), false);
  for (const int listed : in_order(graph)) {
    const auto index = static_cast<std::size_t>(listed);
    for (const int before : graph.nodes[index].after) {
      if (!seen[static_cast<std::size_t>(before)]) return true;
    }
    seen[index] = true;
  }
  return false;
}

bool copies_freed_memory(const State& s, const std::vector<Node>& nodes) {
  return std::any_of(nodes.begin(), nodes.end(), [&s](const Node& node) {
    return node.type == kNodeMemcpy && !has_memory(s, node.op);
  });
}

std::vector<Node> flattened(const Graph& graph) {
  std::vector<Node> flat;
  flatten(graph, {}, flat);
  return flat;
}

UpdateInfo compare(const State& s, const std::vector<Node>& own, const std::vector<Node>& other) {
  if (own.size() != other.size()) return refusal(kUpdateTopologyChanged);
  for (std::size_t i = 0; i < own.size(); ++i) {
    const UpdateInfo info = compare_nodes(s, own[i], other[i]);
    if (info.result != kUpdateSuccess) return info;
  }
  return {};
}

void bury(State& s) {
  const auto is_dead = [&s](const std::shared_ptr<GraphExec>& exec) {
    if (exec->context->alive && !is_over(s, exec->last)) return false;
    give_up(s, *exec);
    return true;
  };
  auto& dying = s.dying_execs;
  dying.erase(std::remove_if(dying.begin(), dying.end(), is_dead), dying.end());
  if (s.graph_allocations > 0) free_unwanted_memory(s);
}

Handle function_named(State& s, const std::string& name) {
  Handle& handle = s.functions[name];
  if (handle == 0) {
    handle = new_handle(Kind::kFunction);
    s.function_names[handle] = name;
  }
  return handle;
}

}  // namespace fakecuda
