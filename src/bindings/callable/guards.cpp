#include "bindings/callable/guards.hpp"

#include <algorithm>

#include "bindings/callable/pattern.hpp"
#include "bindings/interop/array_desc.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/objects.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

// An array whose library does not tell by DLPack has torch's method for it.
bool has_data_at(PyObject* array, std::uintptr_t address) {
  static PyObject* const name = interned("data_ptr");
  ArrayDesc desc;  // NOLINT: its storage is written where it is used
  if (read_array(array, desc)) return desc.address == address;
  PyObject* answer = PyObject_CallMethodNoArgs(array, name);
  void* found = answer != nullptr ? PyLong_AsVoidPtr(answer) : nullptr;
  Py_XDECREF(answer);
  if (PyErr_Occurred() != nullptr) return ignore_exception();
  return reinterpret_cast<std::uintptr_t>(found) == address;
}

// Of these an equal one is as good; of anything else what is inside is watched, too.
bool is_plain_value(PyObject* value) {
  return PyFloat_CheckExact(value) || PyLong_CheckExact(value) || PyUnicode_CheckExact(value);
}

}  // namespace

Guards::Guards(const py::tuple& items, const py::tuple& always, std::size_t at_once)
    : at_once_(std::min(at_once, items.size())) {
  add(items_, items);
  add(always_, always);
}

void Guards::add(std::vector<Item>& items, const py::tuple& described) {
  items.reserve(described.size());
  for (const py::handle each : described) {
    const auto parts = py::cast<py::tuple>(each);
    if (parts.size() != 4) throw py::value_error("not a place to watch");
    Item item;
    item.container = parts[0];
    item.key = parts[1];
    item.expected = parts[2];
    PyObject* container = item.container.ptr();
    if (PyCell_Check(container) == 0 && PyDict_Check(container) == 0 &&
        PyList_Check(container) == 0 && PyTuple_Check(container) == 0) {
      throw py::value_error("a place to watch is in a dict, a list, a tuple or a cell");
    }
    item.has_address = !parts[3].is_none();
    if (item.has_address) item.address = parts[3].cast<std::uintptr_t>();
    items.push_back(std::move(item));
  }
}

PyObject* Guards::now_at(const Item& item) {
  PyObject* container = item.container.ptr();
  if (PyDict_Check(container) != 0) return PyDict_GetItemWithError(container, item.key.ptr());
  if (PyCell_Check(container) != 0) return PyCell_GET(container);
  const Py_ssize_t index = PyLong_AsSsize_t(item.key.ptr());
  const bool there = index >= 0 && index < PySequence_Fast_GET_SIZE(container);
  return there ? PySequence_Fast_GET_ITEM(container, index) : nullptr;
}

bool Guards::is_same(const Item& item) {
  PyObject* now = now_at(item);
  if (now == nullptr) {
    PyErr_Clear();
    return false;
  }
  Py_INCREF(now);
  bool same = now == item.expected.ptr();
  if (!same) {
    same = is_plain_value(now) && same_value(now, item.expected.ptr());
  } else if (item.has_address) {
    same = has_data_at(now, item.address);
  }
  Py_DECREF(now);
  return same;
}

bool Guards::hold() {
  for (const Item& item : always_) {
    if (!is_same(item)) return false;
  }
  for (std::size_t i = 0; i < at_once_; ++i) {
    const Item& item = items_[next_];
    next_ = next_ + 1 < items_.size() ? next_ + 1 : 0;
    if (!is_same(item)) return false;
  }
  return true;
}

int Guards::traverse(visitproc visit, void* arg) const {
  for (const auto* items : {&items_, &always_}) {
    for (const Item& item : *items) {
      Py_VISIT(item.container.ptr());
      Py_VISIT(item.key.ptr());
      Py_VISIT(item.expected.ptr());
    }
  }
  return 0;
}

}  // namespace gpuprof::bindings
