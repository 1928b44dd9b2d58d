// What the arguments of a call must look like, for one graph: their structure, the plain values in
// it, and the arrays' types, sizes and devices. And the structure of a result, which is made anew
// around each call's arrays.
//
// Both are given as nested tuples, by gpuprof._callable.pytree:
//   ("array", index) | ("value", object) | ("tuple" | "list", children) | ("dict", keys, children)
//   | ("object", type, attribute names, children) | ("mapping", type, keys, children) |
//   ("registered", type, function that takes one apart, (pattern of its parts, of the rest))
// and of a result ("object", function that makes one of a list of its parts, children).
// Patterns borrow what they name: they are good for as long as the tuple. All functions need the
// interpreter lock; comparing values may run Python code.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "bindings/interop/array_desc.hpp"

namespace gpuprof::bindings {

// One array of the arguments. Its facts are those of the array inside. Borrows the objects.
struct ArraySpec : ArrayFacts {
  // Of what gpuprof._callable.capture tells by names: `desc` has the facts.
  explicit ArraySpec(const pybind11::dict& given);

  pybind11::handle framework;  // an Arrays of gpuprof._frameworks.arrays; it keeps the types alive
  pybind11::handle inside;     // the array that the graph reads
  // Of the call's array, where the function may see them; else those of any call will do.
  std::optional<std::vector<std::int64_t>> call_strides;
  std::optional<bool> requires_grad;  // what the call's array must say; else nothing is asked
  bool copied_in;                     // from the call's array
  bool copied_back;                   // to the call's array, which the function writes to
  bool in_place;                      // only this very array will do
  std::vector<PyTypeObject*> types;   // exact
  bool may_be_view;                   // its bits may stand for the negative, or the conjugate
  std::int64_t first = 0;             // from the address to the first byte of the array inside
  std::int64_t last = 0;              // to the one after the last
};

// One array of a call. Whoever made the list of them lets go of the objects: no destructor does,
// because a thread that ends at exit must not touch them.
struct CallArray {
  PyObject* object = nullptr;  // owned
  std::uintptr_t address = 0;
  std::uintptr_t begin = 0;  // of the memory that it lies in; its address is another one where a
  std::uintptr_t end = 0;    // stride is negative
  bool fits = true;          // laid out as the array inside; else it has to be staged
};

// A call that is being compared.
struct CallMatch {
  const std::vector<ArraySpec>& specs;
  std::vector<CallArray>& arrays;  // one for each spec; filled in, after a mismatch some of them
};

// Whether `object` is an array as the graph wants it. Fills in `array`.
bool read_call_array(PyObject* object, const ArraySpec& spec, CallArray& array);

// Sets where an array of these strides begins and ends, in bytes from its address.
void measure(const std::vector<std::int64_t>& shape, const std::int64_t* strides, unsigned bits,
             std::int64_t& first, std::int64_t& last);

class Pattern {
 public:
  // Throws py::value_error and py::cast_error for what is no pattern.
  explicit Pattern(pybind11::handle described);

  // Whether `value` is of this structure.
  bool matches(PyObject* value, const CallMatch& call) const;
  // The same for keyword arguments: null stands for none. They may come in any order, unless it is
  // `in_order`.
  bool matches_keywords(PyObject* keywords, bool in_order, const CallMatch& call) const;

  // A new structure around `arrays`; a new reference, or null with a Python exception set.
  [[nodiscard]] PyObject* build(const std::vector<PyObject*>& arrays) const;

 private:
  enum class Kind : std::uint8_t {
    kArray,
    kValue,
    kTuple,
    kList,
    kDict,
    kObject,
    kMapping,
    kRegistered
  };
  bool matches_new(PyObject* value, const CallMatch& call) const;
  bool matches_sequence(PyObject* value, const CallMatch& call) const;
  bool matches_entries(PyObject* value, const CallMatch& call) const;
  bool matches_registered(PyObject* value, const CallMatch& call) const;
  // What `get` finds in the value for each key.
  bool matches_by_key(PyObject* value, binaryfunc get, const CallMatch& call) const;
  [[nodiscard]] PyObject* key_at(std::size_t index) const {
    return PyTuple_GET_ITEM(keys_.ptr(), static_cast<Py_ssize_t>(index));
  }
  [[nodiscard]] PyObject* build_dict(const std::vector<PyObject*>& arrays) const;
  [[nodiscard]] PyObject* make_of(PyObject* parts) const;

  Kind kind_ = Kind::kValue;
  std::size_t index_ = 0;      // kArray
  pybind11::handle object_;    // kValue: the value; else the type
  pybind11::handle function_;  // takes a kRegistered apart, or makes the kObject of a result
  pybind11::handle keys_;      // kDict, kMapping: keys; kObject: attribute names; a tuple
  std::vector<Pattern> children_;
};

// Whether two constants are the same for a graph: of one type, and equal, bit by bit where they are
// floats.
bool same_value(PyObject* value, PyObject* captured);

}  // namespace gpuprof::bindings
