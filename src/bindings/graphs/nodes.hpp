// Nodes of graphs as Python objects.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

#include <vector>

#include "graphs/cuda_node_ids.hpp"
#include "graphs/nodes.hpp"

namespace gpuprof::bindings {

// Each one is a GraphNode.
using NodeTuple = pybind11::typing::Tuple<pybind11::object, pybind11::ellipsis>;
NodeTuple python_nodes(const std::vector<graphs::Node>& nodes);

// Pairs of a node's number and its scope's path.
using Scopes = pybind11::typing::Tuple<pybind11::str, pybind11::ellipsis>;
using NodeIds = pybind11::typing::List<pybind11::typing::Tuple<pybind11::int_, Scopes>>;
NodeIds python_ids(const std::vector<graphs::LabelledNode>& nodes);

}  // namespace gpuprof::bindings
