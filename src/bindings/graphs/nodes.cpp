// What a graph is made of, as plain data for Python, and what src/text says of it.
//
// The interpreter lock stays held while a graph is read by its handle: it keeps Python code on
// other threads from destroying the graph meanwhile, and a thousand nodes take about a millisecond.
#include <pybind11/stl.h>

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "bindings/bind.hpp"
#include "bindings/graphs/nodes.hpp"
#include "bindings/python/objects.hpp"
#include "bindings/timing/sample.hpp"
#include "gpuprof/nodes.hpp"
#include "text/graph_nodes.hpp"
#include "text/graph_text.hpp"
#include "text/kernel_name.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using graphs::Edge;

namespace {

using Indices = py::typing::Tuple<py::int_, py::ellipsis>;
using Names = py::typing::Tuple<py::str, py::ellipsis>;
using Nodes = py::typing::Tuple<GraphNode, py::ellipsis>;
using Size = py::typing::Optional<py::typing::Tuple<py::int_, py::int_, py::int_>>;

// The constructor's arguments, which are a node's fields.
constexpr std::array<const char*, 16> kFields{
    "index",         "type",     "name",  "symbol",       "grid",         "block",
    "shared_memory", "nbytes",   "value", "element_size", "dependencies", "programmatic",
    "dependents",    "children", "scope", "scope_names"};

// Typed for the stub.
template <typename Type>
Type typed(py::object object) {
  return py::reinterpret_steal<Type>(object.release());
}

template <typename Values>
py::tuple tuple_of(const Values& values) {
  return py::tuple(py::cast(values));
}

py::tuple fields_of(const py::object& node) {
  py::tuple result(kFields.size());
  for (std::size_t i = 0; i < kFields.size(); ++i) result[i] = node.attr(kFields[i]);
  return result;
}

NodeType checked_type(const py::str& name) {
  const std::string text = utf8(name.ptr());
  if (const auto type = graph_text::node_type(text)) return *type;
  throw py::value_error("type: expected the type of a node, such as 'kernel', got " +
                        py::repr(name).cast<std::string>());
}

std::unique_ptr<GraphNode> make_node(
    std::size_t index, const py::str& type, const py::str& name, const py::str& symbol,
    const std::optional<Extent>& grid, const std::optional<Extent>& block,
    std::optional<std::uint64_t> shared_memory, std::optional<std::uint64_t> nbytes,
    std::optional<std::uint32_t> value, std::optional<unsigned> element_size,
    std::vector<std::size_t> dependencies, std::vector<std::size_t> programmatic,
    std::vector<std::size_t> dependents, std::vector<GraphNode> children, const py::str& scope,
    std::vector<std::string> scope_names) {
  return std::make_unique<GraphNode>(GraphNode{
      index, checked_type(type), utf8(name.ptr()), utf8(symbol.ptr()), grid, block, shared_memory,
      nbytes, value, element_size, std::move(dependencies), std::move(programmatic),
      std::move(dependents), std::move(children), utf8(scope.ptr()), std::move(scope_names)});
}

// They are parts of the node, which they keep alive.
Nodes children_of(const py::object& node) {
  const auto& children = node.cast<const GraphNode&>().children;
  py::tuple result(children.size());
  for (std::size_t i = 0; i < children.size(); ++i) {
    result[i] = py::cast(&children[i], py::return_value_policy::reference_internal, node);
  }
  return typed<Nodes>(std::move(result));
}

py::typing::Dict<py::str, py::object> node_dict(const py::object& node) {
  py::typing::Dict<py::str, py::object> result;
  for (const char* field : kFields) {
    const py::object value = node.attr(field);
    result[field] = py::isinstance<py::tuple>(value) ? py::list(value) : value;
  }
  py::list children;
  for (const py::handle child : node.attr("children")) children.append(child.attr("to_dict")());
  result["children"] = std::move(children);
  return result;
}

std::string repr_of_node(const py::object& self) {
  const auto& node = self.cast<const GraphNode&>();
  std::string result = "<GraphNode " + std::to_string(node.index) + " " + node_type_name(node.type);
  const auto add = [&](bool known, const char* what, const char* field) {
    if (known) result += what + py::repr(self.attr(field)).cast<std::string>();
  };
  add(!node.name.empty(), " ", "name");
  add(node.grid.has_value(), " grid=", "grid");
  add(node.block.has_value(), " block=", "block");
  add(node.nbytes.has_value(), " nbytes=", "nbytes");
  add(!node.scope.empty(), " scope=", "scope");
  if (!node.children.empty()) result += " children=" + std::to_string(node.children.size());
  return result + ">";
}

using EdgePairs = py::typing::Tuple<py::typing::Tuple<py::int_, py::int_>, py::ellipsis>;

EdgePairs edge_pairs(std::uintptr_t graph) {
  const std::vector<Edge> edges = graphs::edges(reinterpret_cast<void*>(graph));
  py::tuple result(edges.size());
  for (std::size_t i = 0; i < edges.size(); ++i) {
    result[i] = py::make_tuple(edges[i].from, edges[i].to);
  }
  return typed<EdgePairs>(std::move(result));
}

auto text(std::string GraphNode::* member) {
  return [member](const GraphNode& node) { return from_utf8(node.*member); };
}

template <typename Type, typename Member>
auto listed(Member GraphNode::* member) {
  return [member](const GraphNode& node) { return typed<Type>(tuple_of(node.*member)); };
}

auto size(std::optional<Extent> GraphNode::* member) {
  return [member](const GraphNode& node) {
    const auto& known = node.*member;
    return typed<Size>(known ? py::object(tuple_of(*known)) : py::none());
  };
}

Names scope_names(const GraphNode& node) {
  py::tuple names(node.scope_names.size());
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = from_utf8(node.scope_names[i]);
  return typed<Names>(std::move(names));
}

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
      .def_property_readonly(
          "type", [](const GraphNode& self) { return node_type_name(self.type); },
          R"(What the node does.

'kernel', 'memcpy', 'memset', 'host', 'graph', 'empty', 'event_wait', 'event_record',
'semaphore_signal', 'semaphore_wait', 'mem_alloc', 'mem_free', 'batch_mem_op', 'conditional', or
'type_N' for one that this gpuprof does not know.)")
      .def_property_readonly("name", text(&GraphNode::name),
                             "The kernel's name as written in C++; empty for other nodes.")
      .def_property_readonly("symbol", text(&GraphNode::symbol),
                             "The kernel's name as the driver has it.")
      .def_property_readonly("grid", size(&GraphNode::grid),
                             "Blocks of the kernel's grid: (x, y, z).")
      .def_property_readonly("block", size(&GraphNode::block), "Threads of one block: (x, y, z).")
      .def_readonly("shared_memory", &GraphNode::shared_memory,
                    "Bytes of dynamic shared memory of one block.")
      .def_readonly("nbytes", &GraphNode::nbytes, "Bytes that are copied, set or allocated.")
      .def_readonly("value", &GraphNode::value, "What a memset sets each element to.")
      .def_readonly("element_size", &GraphNode::element_size,
                    "Bytes of one element of a memset: 1, 2 or 4.")
      .def_property_readonly("dependencies", listed<Indices>(&GraphNode::dependencies),
                             "The nodes that this one waits for.")
      .def_property_readonly("programmatic", listed<Indices>(&GraphNode::programmatic),
                             "Those of `dependencies` that need not be over when this node starts.")
      .def_property_readonly("dependents", listed<Indices>(&GraphNode::dependents),
                             "The nodes that wait for this one.")
      .def_property_readonly("children", &children_of, "The nodes of a child graph.")
      .def_property_readonly(
          "scope", text(&GraphNode::scope),
          "The path of the innermost scope that was open when the node was captured, "
          "such as 'step/forward'; empty outside of all scopes.")
      .def_property_readonly("scope_names", &scope_names,
                             "The names in that path, outermost first.");
  return node;
}

void bind_words(py::module_& module, py::class_<GraphNode>& node) {
  node.def_property_readonly("_title", &graph_text::title)
      .def_property_readonly("_details", &graph_text::details)
      .def_property_readonly("_scope_text", &graph_text::scope_text)
      .def("_changes", &graph_text::changes, py::arg("other"))
      .def("_telling_names", &graph_text::telling_names, py::arg("other"));
  const auto brief = [](const py::str& name) { return graph_text::short_name(utf8(name.ptr())); };
  module.def("_short_name", brief, py::arg("name"));
  const auto cut = [](const py::str& name, std::size_t most) {
    return graph_text::cut(graph_text::shown(utf8(name.ptr())), most);
  };
  module.def("_cut_name", cut, py::arg("name"), py::arg("most"));
  module.def("_node_order", &graph_text::in_order, py::arg("nodes"));
  const auto names = [](const std::vector<GraphNode>& nodes) {
    py::typing::List<py::str> result;
    for (const std::string& name : kernel_names(nodes)) result.append(from_utf8(name));
    return result;
  };
  module.def("_kernel_names", names, py::arg("nodes"));
  module.def("_to_dot", &to_dot, py::arg("nodes"), py::arg("name"));
  module.def("_update_reason", &graph_text::update_reason, py::arg("result"), py::arg("own"),
             py::arg("own_index"), py::arg("other"), py::arg("other_index"),
             "Why a graph could not be updated; an index is -1 where no node is to blame.");
}

}  // namespace

NodeTuple python_nodes(const std::vector<graphs::Node>& nodes) {
  py::list made;
  for (GraphNode& node : graph_text::public_nodes(nodes)) made.append(py::cast(std::move(node)));
  return py::tuple(std::move(made));
}

NodeIds python_ids(const std::vector<graphs::LabelledNode>& nodes) {
  NodeIds ids;
  for (const graphs::LabelledNode& node : nodes) {
    ids.append(py::make_tuple(node.id, path_names(*node.scope)));
  }
  return ids;
}

void bind_graphs_nodes(py::module_& module) {
  py::class_<GraphNode> node = bind_fields(module);
  node.def("to_dict", &node_dict, "Plain data, ready for JSON.")
      .def("__repr__", &repr_of_node)
      .def("__eq__",
           [](const py::object& self, const py::object& other) {
             return py::isinstance<GraphNode>(other) && fields_of(self).equal(fields_of(other));
           })
      .def("__hash__", [](const py::object& self) { return py::hash(fields_of(self)); })
      .def("__reduce__", [](const py::object& self) {
        return py::typing::Tuple<py::object, py::object>(
            py::make_tuple(py::type::of(self), fields_of(self)));
      });
  bind_words(module, node);
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
}

}  // namespace gpuprof::bindings
