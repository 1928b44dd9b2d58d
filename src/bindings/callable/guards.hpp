// What a captured graph takes for granted of torch's modules, optimizers and tensors: which objects
// are in their dicts, lists and sets, and where each tensor's memory is and how it is laid out.
//
// From Python 3.12 on the interpreter tells when a dict is about to change, and before, each dict
// has a version: its entries are compared only after a change. Lists and sets have neither, and are
// compared each time. So are tensors, by torch's C interface where it is there, by DLPack's
// exchange API, or by their attributes. All functions need the interpreter lock. Only tensors that
// have neither of the first two, and keys that are tensors, run Python code.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bindings/interop/dlpack.hpp"
#include "bindings/interop/torch_tensor.hpp"

namespace gpuprof::bindings {

class Guards {
 public:
  // `containers`: tuples of (dict, list or set, ((key, value), ...), whole, owner). A whole dict
  // has these keys alone, in this order. Of another one no other key is looked at, and `absent()`
  // as a value says that the key is not there. `owner` is the object whose `__dict__` it has to be,
  // or None. A list has these values, a set these keys. `tensors`: tuples of (tensor, its
  // _core._array_facts or None). Each check compares all containers, and the next `at_once` tensors
  // in turn; 0 is all of them. Throws py::value_error and py::cast_error for anything else.
  Guards(const pybind11::tuple& containers, const pybind11::tuple& tensors, std::size_t at_once);
  Guards(const Guards&) = delete;
  Guards& operator=(const Guards&) = delete;
  ~Guards() { stop_watching(); }

  // Whether what was compared is unchanged.
  bool hold() {
    return !flagged_ && owners_hold() && dicts_hold() && sequences_hold() && tensors_hold();
  }
  // From now on hold() is false.
  void flag() noexcept { flagged_ = true; }
  // Called just before one of the dicts changes.
  void note_dict_change() noexcept { is_changed_ = true; }

  static PyObject* absent();  // borrowed

  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  struct Entry {
    pybind11::object key;
    pybind11::object expected;  // absent() for none
  };
  struct Container {
    pybind11::object object;
    pybind11::object owner;  // of a `__dict__`; else None
    std::size_t first = 0;   // of its entries
    std::size_t last = 0;    // the one after them
    bool whole = false;
    std::uint64_t version = 0;  // when it was compared; 0 is no dict's
  };
  struct Owned {
    PyObject* const* place;  // where the owner has its `__dict__`
    PyObject* dict;
  };
  using Look = int (*)(void* object, DlTensor* out);
  struct Tensor {
    pybind11::object tensor;
    pybind11::object attributes;  // where no protocol tells of it; else null
    PyTypeObject* type = nullptr;
    Look look = nullptr;  // null: another protocol
    TorchTensorView view;
    std::uintptr_t address = 0;
    DlDevice device{kDlpackCuda, 0};
    DlDataType dtype{0, 0, 1};
    int rank = 0;
    std::size_t sizes = 0;  // where its sizes begin in `sizes_`, and after them its strides
  };

  void add_container(pybind11::handle described);
  void add_tensor(pybind11::handle described);
  void watch();
  void stop_watching() noexcept;
  [[nodiscard]] bool owners_hold() const;
  bool dicts_hold();
  [[nodiscard]] bool sequences_hold() const;
  [[nodiscard]] bool is_same_dict(const Container& each) const;
  [[nodiscard]] bool is_same_sequence(const Container& each) const;
  [[nodiscard]] bool is_same_set(const Container& each) const;
  bool tensors_hold();
  [[nodiscard]] bool is_same(const Tensor& each) const;
  [[nodiscard]] bool has_facts(const Tensor& each, const DlTensor& now) const;

  std::vector<Container> dicts_;
  std::vector<Container> sequences_;  // lists and sets
  std::vector<Owned> owned_;
  std::vector<Entry> entries_;  // of all containers
  std::vector<Tensor> tensors_;
  std::vector<std::int64_t> sizes_;  // of all tensors
  std::size_t at_once_ = 0;
  std::size_t next_tensor_ = 0;
  bool is_watching_ = false;
  bool is_changed_ = true;  // since the dicts were compared
  bool flagged_ = false;
};

// The guards inside a `_core._Guards`, without a check.
Guards& guards_of(PyObject* object);

// Lets Python collect objects of a class that are part of a cycle: a module may hold the callable
// that guards it. `kInside` gives what is inside of one, which has traverse() and clear().
template <auto kInside>
pybind11::custom_type_setup collectable() {
  // pybind11 shows an object of a new subclass to the collector before it has laid it out.
  static constexpr auto kIsMade = [](PyObject* self) {
    return reinterpret_cast<pybind11::detail::instance*>(self)->simple_layout &&
           pybind11::detail::is_holder_constructed(self);
  };
  return pybind11::custom_type_setup([](PyHeapTypeObject* heap_type) {
    PyTypeObject* type = &heap_type->ht_type;
    type->tp_flags |= Py_TPFLAGS_HAVE_GC;
    type->tp_traverse = [](PyObject* self, visitproc visit, void* arg) {
      Py_VISIT(Py_TYPE(self));
      if (!kIsMade(self)) return 0;
      return kInside(self).traverse(visit, arg);
    };
    type->tp_clear = [](PyObject* self) {
      if (kIsMade(self)) kInside(self).clear();
      return 0;
    };
  });
}

}  // namespace gpuprof::bindings
