// How the backward pass of a call is found among autograd's nodes.
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

Inside calls_inside(const Call& call) {
  Inside inside;
  for (const py::object& inner : call.inner) {
    for (const py::object& each : call_of(inner).results) inside[each.ptr()] = &call_of(inner);
  }
  return inside;
}

void find_last_node(Call& call, std::uint64_t end, const Inside& inside) {
  static PyObject* const next_functions = interned("next_functions");
  const auto first = static_cast<std::uint64_t>(call.first);
  call.last_number = kLeafNumber;
  Objects left = call.results;
  Objects kept = left;  // or another node might come to lie at the same address
  std::unordered_set<PyObject*> seen;
  for (const py::object& each : left) seen.insert(each.ptr());
  const auto add = [&](PyObject* next) {
    if (next == Py_None || !seen.insert(next).second) return;
    kept.push_back(py::reinterpret_borrow<py::object>(next));
    const std::uint64_t number = number_of(next);
    if (first <= number && number < end) {
      left.push_back(kept.back());
    } else if (number < kLeafNumber) {
      call.beyond.push_back(kept.back());
    }
  };
  while (!left.empty()) {
    const py::object node = std::move(left.back());
    left.pop_back();
    const auto found = inside.find(node.ptr());
    const Call* inner = found == inside.end() ? nullptr : found->second;
    const std::uint64_t number = inner != nullptr ? inner->last_number : number_of(node.ptr());
    if (number < call.last_number) {
      call.last = inner != nullptr ? inner->last : node;
      call.last_number = number;
    }
    if (inner != nullptr) {
      for (const py::object& each : inner->beyond) add(each.ptr());
      continue;
    }
    const py::object next = owned(PyObject_GetAttr(node.ptr(), next_functions));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(next.ptr()); ++i)
      add(PyTuple_GET_ITEM(PyTuple_GET_ITEM(next.ptr(), i), 0));
  }
}

}  // namespace gpuprof::bindings::watch
