// What a graph is made of, as plain data for Python.
//
// The interpreter lock stays held while a graph is read by its handle: it keeps Python code on
// other threads from destroying the graph meanwhile, and a thousand nodes take about a millisecond.
#include "graphs/nodes.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "bindings/bind.hpp"
#include "bindings/graphs/nodes.hpp"
#include "bindings/python/objects.hpp"
#include "bindings/timing/sample.hpp"
#include "graphs/kernel_name.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using graphs::Edge;
using graphs::Node;
using graphs::NodeType;

namespace {

using Indices = py::typing::Tuple<py::int_, py::ellipsis>;
using Extent = std::optional<graphs::Extent>;

// Immutable, and made of immutable objects, so that it can be in no cycle. None where a field does
// not apply to the node's type, or the driver did not tell.
struct GraphNode {
  std::size_t index;
  py::str type;
  py::str name;
  py::str symbol;
  py::object grid;
  py::object block;
  py::object shared_memory;
  py::object nbytes;
  py::object value;
  py::object element_size;
  py::tuple dependencies;
  py::tuple programmatic;
  py::tuple dependents;
  py::tuple children;
  py::str scope;
  py::tuple scope_names;

  // The arguments that make an equal node.
  [[nodiscard]] py::tuple arguments() const {
    return py::make_tuple(index, type, name, symbol, grid, block, shared_memory, nbytes, value,
                          element_size, dependencies, programmatic, dependents, children, scope,
                          scope_names);
  }
};

py::tuple extent(const graphs::Extent& size) { return py::make_tuple(size[0], size[1], size[2]); }

py::tuple indices(const std::vector<std::size_t>& values) {
  py::tuple result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) result[i] = values[i];
  return result;
}

// Makes Python's nodes. Graphs launch few kernels many times, so names are made once.
class Maker {
 public:
  py::tuple nodes(const std::vector<Node>& nodes) {
    const std::vector<graphs::NodeLinks> links = graphs::links_of(nodes);
    py::tuple result(nodes.size());
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      result[i] = py::cast(node(nodes[i], i, links[i]));
    }
    return result;
  }

 private:
  struct KernelName {
    py::str name;
    py::str symbol;
  };

  GraphNode node(const Node& node, std::size_t index, const graphs::NodeLinks& links) {
    const KernelName& kernel = kernel_name(node.kernel);
    GraphNode result{index,
                     type(node.type),
                     kernel.name,
                     kernel.symbol,
                     py::none(),
                     py::none(),
                     py::none(),
                     py::none(),
                     py::none(),
                     py::none(),
                     indices(links.dependencies),
                     indices(links.programmatic),
                     indices(links.dependents),
                     nodes(node.children),
                     py::str(),
                     py::tuple()};
    if (node.scope != nullptr) add_scope(*node.scope, result);
    if (node.has_details) add_details(node, result);
    return result;
  }

  static void add_details(const Node& node, GraphNode& result) {
    switch (node.type) {
      case NodeType::kKernel:
        result.grid = extent(node.grid);
        result.block = extent(node.block);
        result.shared_memory = py::int_(node.nbytes);
        break;
      case NodeType::kMemset:
        result.value = py::int_(node.value);
        result.element_size = py::int_(node.element_size);
        [[fallthrough]];
      case NodeType::kMemcpy:
      case NodeType::kMemAlloc:
        result.nbytes = py::int_(node.nbytes);
        break;
      default:
        break;
    }
  }

  void add_scope(const timing::Path& path, GraphNode& result) {
    auto found = scopes_.find(&path);
    if (found == scopes_.end()) {
      found = scopes_.emplace(&path, Scope{from_utf8(path.text), path_names(path)}).first;
    }
    result.scope = found->second.text;
    result.scope_names = found->second.names;
  }

  const py::str& type(NodeType type) {
    const auto found = types_.find(static_cast<int>(type));
    if (found != types_.end()) return found->second;
    return types_.emplace(static_cast<int>(type), from_utf8(graphs::node_type_name(type)))
        .first->second;
  }

  const KernelName& kernel_name(const std::string& symbol) {
    const auto found = names_.find(symbol);
    if (found != names_.end()) return found->second;
    return names_
        .emplace(symbol, KernelName{from_utf8(graphs::demangled(symbol)), from_utf8(symbol)})
        .first->second;
  }

  struct Scope {
    py::str text;
    py::tuple names;
  };

  std::unordered_map<int, py::str> types_;
  std::unordered_map<const timing::Path*, Scope> scopes_;
  std::unordered_map<std::string, KernelName> names_;
};

using Nodes = py::typing::Tuple<GraphNode, py::ellipsis>;

std::unique_ptr<GraphNode> make_node(
    std::size_t index, const py::str& type, const py::str& name, const py::str& symbol,
    const Extent& grid, const Extent& block, std::optional<std::uint64_t> shared_memory,
    std::optional<std::uint64_t> nbytes, std::optional<std::uint32_t> value,
    std::optional<unsigned> element_size, const std::vector<std::size_t>& dependencies,
    const std::vector<std::size_t>& programmatic, const std::vector<std::size_t>& dependents,
    const Nodes& children, const py::str& scope, const std::vector<std::string>& scope_names) {
  for (const py::handle child : children) py::cast<const GraphNode&>(child);  // or it throws
  return std::make_unique<GraphNode>(GraphNode{
      index, type, name, symbol, grid ? py::object(extent(*grid)) : py::none(),
      block ? py::object(extent(*block)) : py::none(), py::cast(shared_memory), py::cast(nbytes),
      py::cast(value), py::cast(element_size), indices(dependencies), indices(programmatic),
      indices(dependents), children, scope, py::tuple(py::cast(scope_names))});
}

py::object listed(const py::object& sequence) {
  return sequence.is_none() ? sequence : py::list(sequence);
}

py::typing::Dict<py::str, py::object> node_dict(const GraphNode& node) {
  py::typing::Dict<py::str, py::object> result;
  result["index"] = node.index;
  result["type"] = node.type;
  result["name"] = node.name;
  result["symbol"] = node.symbol;
  result["grid"] = listed(node.grid);
  result["block"] = listed(node.block);
  result["shared_memory"] = node.shared_memory;
  result["nbytes"] = node.nbytes;
  result["value"] = node.value;
  result["element_size"] = node.element_size;
  result["dependencies"] = listed(node.dependencies);
  result["programmatic"] = listed(node.programmatic);
  result["dependents"] = listed(node.dependents);
  py::list children;
  for (const py::handle child : node.children) {
    children.append(node_dict(child.cast<const GraphNode&>()));
  }
  result["children"] = std::move(children);
  result["scope"] = node.scope;
  result["scope_names"] = listed(node.scope_names);
  return result;
}

std::string repr_of_node(const GraphNode& node) {
  std::string result = "<GraphNode " + std::to_string(node.index) + " ";
  result += node.type.cast<std::string>();
  const auto add = [&result](const char* what, const py::object& value) {
    if (!value.is_none()) result += what + py::repr(value).cast<std::string>();
  };
  if (py::len(node.name) != 0) add(" ", node.name);
  add(" grid=", node.grid);
  add(" block=", node.block);
  add(" nbytes=", node.nbytes);
  if (py::len(node.scope) != 0) add(" scope=", node.scope);
  if (!node.children.empty()) result += " children=" + std::to_string(node.children.size());
  return result + ">";
}

void* checked(std::uintptr_t graph) {
  if (graph == 0) {
    throw py::value_error("graph: 0 is no graph; expected the handle of a CUgraph that is alive");
  }
  return reinterpret_cast<void*>(graph);
}

py::typing::Tuple<py::typing::Tuple<py::int_, py::int_>, py::ellipsis> edge_pairs(
    std::uintptr_t graph) {
  const std::vector<Edge> edges = graphs::edges(checked(graph));
  py::tuple result(edges.size());
  for (std::size_t i = 0; i < edges.size(); ++i) {
    result[i] = py::make_tuple(edges[i].from, edges[i].to);
  }
  return py::reinterpret_steal<
      py::typing::Tuple<py::typing::Tuple<py::int_, py::int_>, py::ellipsis>>(result.release());
}

// Typed for the stub; the objects are those of the node.
template <typename Type, typename Member>
auto typed(Member GraphNode::* member) {
  return [member](const GraphNode& node) {
    return py::reinterpret_borrow<Type>((node.*member).ptr());
  };
}

using OptionalExtent = py::typing::Optional<py::typing::Tuple<py::int_, py::int_, py::int_>>;
using Names = py::typing::Tuple<py::str, py::ellipsis>;
using OptionalInt = py::typing::Optional<py::int_>;

py::class_<GraphNode> bind_fields(py::module_& module) {
  py::class_<GraphNode> node(module, "GraphNode", R"(One node of a CUDA graph, as plain data.

A field that does not apply to the node's type is None, as are all of them where the driver does
not tell what a node does. Nodes are named by their index in their own graph.)");
  node.def(py::init(&make_node), py::arg("index"), py::arg("type"), py::arg("name") = "",
           py::arg("symbol") = "", py::arg("grid") = py::none(), py::arg("block") = py::none(),
           py::arg("shared_memory") = py::none(), py::arg("nbytes") = py::none(),
           py::arg("value") = py::none(), py::arg("element_size") = py::none(),
           py::arg("dependencies") = py::tuple(), py::arg("programmatic") = py::tuple(),
           py::arg("dependents") = py::tuple(), py::arg("children") = py::tuple(),
           py::arg("scope") = "", py::arg("scope_names") = py::tuple())
      .def_readonly("index", &GraphNode::index, "The node's place in the driver's list.")
      .def_readonly("type", &GraphNode::type,
                    R"(What the node does.

'kernel', 'memcpy', 'memset', 'host', 'graph', 'empty', 'event_wait', 'event_record',
'semaphore_signal', 'semaphore_wait', 'mem_alloc', 'mem_free', 'batch_mem_op', 'conditional', or
'type_N' for one that this gpuprof does not know.)")
      .def_readonly("name", &GraphNode::name,
                    "The kernel's name as written in C++; empty for other nodes.")
      .def_readonly("symbol", &GraphNode::symbol, "The kernel's name as the driver has it.")
      .def_property_readonly("grid", typed<OptionalExtent>(&GraphNode::grid),
                             "Blocks of the kernel's grid: (x, y, z).")
      .def_property_readonly("block", typed<OptionalExtent>(&GraphNode::block),
                             "Threads of one block: (x, y, z).")
      .def_property_readonly("shared_memory", typed<OptionalInt>(&GraphNode::shared_memory),
                             "Bytes of dynamic shared memory of one block.")
      .def_property_readonly("nbytes", typed<OptionalInt>(&GraphNode::nbytes),
                             "Bytes that are copied, set or allocated.")
      .def_property_readonly("value", typed<OptionalInt>(&GraphNode::value),
                             "What a memset sets each element to.")
      .def_property_readonly("element_size", typed<OptionalInt>(&GraphNode::element_size),
                             "Bytes of one element of a memset: 1, 2 or 4.")
      .def_property_readonly("dependencies", typed<Indices>(&GraphNode::dependencies),
                             "The nodes that this one waits for.")
      .def_property_readonly("programmatic", typed<Indices>(&GraphNode::programmatic),
                             "Those of `dependencies` that need not be over when this node starts.")
      .def_property_readonly("dependents", typed<Indices>(&GraphNode::dependents),
                             "The nodes that wait for this one.")
      .def_property_readonly("children", typed<Nodes>(&GraphNode::children),
                             "The nodes of a child graph.")
      .def_readonly("scope", &GraphNode::scope,
                    "The path of the innermost scope that was open when the node was captured, "
                    "such as 'step/forward'; empty outside of all scopes.")
      .def_property_readonly("scope_names", typed<Names>(&GraphNode::scope_names),
                             "The names in that path, outermost first.");
  return node;
}

}  // namespace

NodeTuple python_nodes(const std::vector<Node>& nodes) { return Maker().nodes(nodes); }

NodeIds python_ids(const std::vector<graphs::LabelledNode>& nodes) {
  NodeIds ids;
  for (const graphs::LabelledNode& node : nodes) {
    ids.append(py::make_tuple(node.id, from_utf8(node.scope->text)));
  }
  return ids;
}

void bind_graphs_nodes(py::module_& module) {
  bind_fields(module)
      .def("to_dict", &node_dict, "Plain data, ready for JSON.")
      .def("__repr__", &repr_of_node)
      .def("__eq__",
           [](const GraphNode& self, const py::object& other) {
             return py::isinstance<GraphNode>(other) &&
                    self.arguments().equal(other.cast<const GraphNode&>().arguments());
           })
      .def("__hash__", [](const GraphNode& self) { return py::hash(self.arguments()); })
      .def("__reduce__", [](const py::object& self) {
        return py::typing::Tuple<py::object, py::object>(
            py::make_tuple(py::type::of(self), self.cast<const GraphNode&>().arguments()));
      });
  module.def(
      "_graph_nodes",
      [](std::uintptr_t graph) {
        const py::tuple nodes = Maker().nodes(graphs::walk(checked(graph)));
        return py::reinterpret_borrow<Nodes>(nodes);
      },
      py::arg("graph"),
      "The nodes of the CUgraph with this handle, which must stay alive and unchanged meanwhile.");
  module.def(
      "_set_node_ids",
      [](std::uintptr_t of_node, std::uintptr_t of_exec) {
        graphs::NodeIdFunctions functions;
        functions.of_node = reinterpret_cast<decltype(functions.of_node)>(of_node);
        functions.of_exec = reinterpret_cast<decltype(functions.of_exec)>(of_exec);
        graphs::set_node_ids(functions);
      },
      py::arg("of_node"), py::arg("of_exec"),
      "The addresses of cuptiGetGraphNodeId and cuptiGetGraphExecId; 0 for none.");
  module.def("_graph_edges", &edge_pairs, py::arg("graph"),
             "The edges as pairs of indices: the first node comes before the second.");
  module.def(
      "_count_nodes", [](std::uintptr_t graph) { return graphs::count_nodes(checked(graph)); },
      py::arg("graph"), "How many nodes the graph has, child graphs' not counted.");
}

}  // namespace gpuprof::bindings
