// How the backward pass of a call is found among autograd's nodes.
#include <unordered_map>
#include <unordered_set>

#include "bindings/watch/watch.hpp"

namespace gpuprof::bindings::watch {

namespace py = pybind11;

namespace {

constexpr std::uint64_t kLeafNumber = std::uint64_t{1} << 63U;  // nodes of parameters are above it

py::object call_method(PyObject* self, PyObject* name) {
  return owned(PyObject_VectorcallMethod(name, &self, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

// The attribute; null for None, and where autograd forbids a view.
py::object node_at(PyObject* owner, PyObject* name) {
  PyObject* found = PyObject_GetAttr(owner, name);
  if (found == nullptr && PyErr_ExceptionMatches(PyExc_RuntimeError) != 0) {
    PyErr_Clear();
    return {};
  }
  auto node = owned(found);
  return node.is_none() ? py::object() : node;
}

void add_once(py::object node, Objects& nodes) {
  if (!node) return;
  for (const py::object& each : nodes) {
    if (each.is(node)) return;
  }
  nodes.push_back(std::move(node));
}

}  // namespace

std::uint64_t number_of(PyObject* node) {
  static PyObject* const name = interned("_sequence_nr");
  const py::object number = call_method(node, name);
  const std::uint64_t value = PyLong_AsUnsignedLongLong(number.ptr());
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  return value;
}

void add_nodes_of(PyObject* tensor, Objects& nodes) {
  static PyObject* const grad_fn = interned("grad_fn");
  static PyObject* const is_view = interned("_is_view");
  static PyObject* const base = interned("_base");
  add_once(node_at(tensor, grad_fn), nodes);
  // If a view is changed in place later, its own node drops out of the graph.
  if (call_method(tensor, is_view).ptr() != Py_True) return;
  if (const py::object of = node_at(tensor, base)) add_once(node_at(of.ptr(), grad_fn), nodes);
}

void find_last_node(const Call& call, std::uint64_t end, Nodes& nodes) {
  static PyObject* const next_functions = interned("next_functions");
  const auto first = static_cast<std::uint64_t>(call.first);
  std::unordered_map<PyObject*, const Nodes*> inner_of;
  for (const auto& inner : call.inner) {
    for (const py::object& each : inner->results) inner_of[each.ptr()] = inner.get();
  }
  nodes.last_number = kLeafNumber;
  Objects left = nodes.results;
  std::unordered_set<PyObject*> seen;
  Objects kept = left;  // or another node might come to lie at the same address
  for (const py::object& each : left) seen.insert(each.ptr());
  const auto add = [&](PyObject* next) {
    if (!seen.insert(next).second) return;
    kept.push_back(py::reinterpret_borrow<py::object>(next));
    const std::uint64_t number = number_of(next);
    if (first <= number && number < end) {
      left.push_back(kept.back());
    } else if (number < kLeafNumber) {
      nodes.beyond.push_back(kept.back());
    }
  };
  while (!left.empty()) {
    py::object node = std::move(left.back());
    left.pop_back();
    const auto inner = inner_of.find(node.ptr());
    const bool is_known = inner != inner_of.end();
    const std::uint64_t number = is_known ? inner->second->last_number : number_of(node.ptr());
    if (number < nodes.last_number) {
      nodes.last = is_known ? inner->second->last : node;
      nodes.last_number = number;
    }
    if (is_known) {
      for (const py::object& each : inner->second->beyond) add(each.ptr());
      continue;
    }
    const py::object next = owned(PyObject_GetAttr(node.ptr(), next_functions));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(next.ptr()); ++i) {
      PyObject* each = PyTuple_GET_ITEM(PyTuple_GET_ITEM(next.ptr(), i), 0);
      if (each != Py_None) add(each);
    }
  }
}

}  // namespace gpuprof::bindings::watch
