// Graphs and their executable copies: what they hold, what an update may change.
//
// What a running launch still needs is given up when that launch is over in virtual time, by
// whichever call comes next. Every function wants the lock held.
#pragma once

#include "state.hpp"

namespace fakecuda {

// The graph with a handle of its own, listed.
std::shared_ptr<Graph> make_graph(State& s, const char* function);
// Takes it, its nodes and the graphs inside its nodes off the lists, and gives up what it holds.
void forget_graph(State& s, Graph& graph);
// Lists a node of `graph` under its handle.
void list_node(State& s, Graph& graph, Node node);
// A copy with handles of its own, as the graph inside a node is.
std::shared_ptr<Graph> clone_into_node(State& s, const Graph& graph);

// The node with this handle, or null. Valid until its graph changes.
const Node* find_node(const State& s, Handle handle);
const Node* find_node(const State& s, Handle handle, NodeType type);

// Whether a node comes after itself; edges that lead there may be added.
bool is_circular(const Graph& graph);

// Whether a copy in it is between memory that is freed.
bool copies_freed_memory(const State& s, const std::vector<Node>& nodes);

// What a launch of the graph runs, in an order in which each node comes after what it waits for.
std::vector<Node> flattened(const Graph& graph);

// Whether an executable copy of `own` can become one of `other`, and if not, why.
UpdateInfo compare(const State& s, const std::vector<Node>& own, const std::vector<Node>& other);

// Gives up what was waiting for a launch to end, and the memory that no graph wants any more.
void bury(State& s);

// The function with this name, the same handle each time.
Handle function_named(State& s, const std::string& name);

}  // namespace fakecuda
