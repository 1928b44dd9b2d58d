// What a function reads besides its arguments: parameters, buffers, flags, names. A graph holds
// their addresses and values, so they must be what they were at the capture.
//
// An item is a place (a dict with a key, a list or tuple with an index, a closure's cell), the
// object that was in it, and for an array its address. Checking all items of a large model costs
// more than a launch, so each check takes the next few in turn, and those that are marked always.
// All functions need the interpreter lock; comparing values may run Python code.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpuprof::bindings {

class Guards {
 public:
  Guards() = default;
  // `items` and `always` are tuples of (container, key, expected, address or None), the key None
  // for a cell. A check takes `at_once` of the items. Throws py::value_error for what is no item.
  Guards(const pybind11::tuple& items, const pybind11::tuple& always, std::size_t at_once);

  // Whether the items that were checked are unchanged.
  bool hold();

  int traverse(visitproc visit, void* arg) const;

 private:
  struct Item {
    pybind11::object container;
    pybind11::object key;
    pybind11::object expected;
    std::uintptr_t address = 0;
    bool has_address = false;
  };
  static void add(std::vector<Item>& items, const pybind11::tuple& described);
  static bool is_same(const Item& item);
  // Borrowed; null where there is nothing any more.
  static PyObject* now_at(const Item& item);

  std::vector<Item> items_;
  std::vector<Item> always_;
  std::size_t at_once_ = 0;
  std::size_t next_ = 0;
};

}  // namespace gpuprof::bindings
