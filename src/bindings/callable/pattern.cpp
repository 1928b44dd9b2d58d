#include "bindings/callable/pattern.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "bindings/python/callbacks.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/objects.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

// A comparison that fails says no: the Python code that then runs asks again and tells why.

bool same_double(double value, double captured) {
  if (std::isnan(value) || std::isnan(captured)) return std::isnan(value) && std::isnan(captured);
  return value == captured && std::signbit(value) == std::signbit(captured);
}

bool says_no(PyObject* array, PyObject* question) {
  return has_answered(PyObject_CallMethodNoArgs(array, question), Py_False);
}

// Whether a tensor's memory is its value: it may stand for the negative or the conjugate of it.
bool is_plain_view(PyObject* array, bool is_complex) {
  static PyObject* const is_neg = interned("is_neg");
  static PyObject* const is_conj = interned("is_conj");
  return says_no(array, is_neg) && (!is_complex || says_no(array, is_conj));
}

bool is_of(PyObject* value, py::handle type) {
  return reinterpret_cast<PyObject*>(Py_TYPE(value)) == type.ptr();
}

bool has_more_attributes(PyObject* object, std::size_t count) {
  static PyObject* const name = interned("__dict__");
  PyObject* own = PyObject_GetAttr(object, name);
  if (own == nullptr) return ignore_exception();
  const bool more = PyDict_Check(own) != 0 && PyDict_GET_SIZE(own) > static_cast<Py_ssize_t>(count);
  Py_DECREF(own);
  return more;
}

bool wants_gradient(PyObject* array) {
  static PyObject* const name = interned("requires_grad");
  return has_answered(PyObject_GetAttr(array, name), Py_True);
}

// Dimensions of one element may have any stride.
bool has_strides(const std::int64_t* strides, const std::vector<std::int64_t>& wanted,
                 const ArraySpec& spec) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (strides[i] != wanted[i] && spec.shape[i] > 1) return false;
  }
  return true;
}

}  // namespace

ArraySpec::ArraySpec(const py::dict& given)
    : ArrayFacts(array_facts(given["desc"])),
      framework(given["framework"].ptr()),
      inside(given["inside"].ptr()),
      call_strides(given["call_strides"].cast<decltype(call_strides)>()),
      requires_grad(given["requires_grad"].cast<decltype(requires_grad)>()),
      copied_in(given["copied_in"].cast<bool>()),
      copied_back(given["copied_back"].cast<bool>()),
      in_place(framework.attr("in_place").cast<bool>()) {
  for (const py::handle type : framework.attr("types")) {
    types.push_back(reinterpret_cast<PyTypeObject*>(type.ptr()));
  }
  // A real tensor is a negative view where it is the imaginary part of a conjugate one, every
  // second of its numbers, which shows in its strides if it has more than one.
  const auto code = static_cast<DlCode>(dtype.code);
  const bool is_real = code == DlCode::kFloat || code == DlCode::kBfloat;
  const bool is_one = std::all_of(shape.begin(), shape.end(), [](auto n) { return n == 1; });
  may_be_view = given["of_torch"].cast<bool>() && (code == DlCode::kComplex || (is_real && is_one));
  measure(shape, strides.data(), dtype.bits, first, last);
}

bool read_call_array(PyObject* object, const ArraySpec& spec, CallArray& array) {
  const auto& types = spec.types;
  if (std::find(types.begin(), types.end(), Py_TYPE(object)) == types.end()) return false;
  ArrayDesc desc;  // NOLINT: its storage is written where it is used
  if (!read_array(object, desc)) return false;
  // Managed memory is read by the GPU as its own is.
  const bool is_on_gpu = desc.device.type == kDlpackCuda || desc.device.type == kDlpackManaged;
  const bool same = is_on_gpu && desc.device.id == spec.device.id && desc.dtype == spec.dtype &&
                    desc.rank == static_cast<int>(spec.shape.size()) &&
                    std::equal(spec.shape.begin(), spec.shape.end(), desc.shape) &&
                    (!spec.in_place || spec.address == desc.address);
  if (!same) return false;
  if (spec.requires_grad && *spec.requires_grad != wants_gradient(object)) return false;
  if (spec.call_strides && !has_strides(desc.strides, *spec.call_strides, spec)) return false;
  const bool same_strides = has_strides(desc.strides, spec.strides, spec);
  if (spec.in_place && !same_strides) return false;
  Py_INCREF(object);
  array.object = object;
  array.address = desc.address;
  const bool is_complex = spec.dtype.code == static_cast<std::uint8_t>(DlCode::kComplex);
  array.fits = same_strides && (!spec.may_be_view || is_plain_view(object, is_complex));
  std::int64_t first = spec.first;
  std::int64_t last = spec.last;
  if (!same_strides) measure(spec.shape, desc.strides, spec.dtype.bits, first, last);
  array.begin = desc.address + static_cast<std::uintptr_t>(first);
  array.end = desc.address + static_cast<std::uintptr_t>(last);
  return true;
}

void measure(const std::vector<std::int64_t>& shape, const std::int64_t* strides, unsigned bits,
             std::int64_t& first, std::int64_t& last) {
  first = last = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) {
      first = last = 0;
      return;
    }
    const std::int64_t step = (shape[i] - 1) * strides[i];
    (step < 0 ? first : last) += step;
  }
  const std::int64_t item = bits / 8;
  first *= item;
  last = (last + 1) * item;
}

bool same_value(PyObject* value, PyObject* captured) {
  if (value == captured) return true;
  if (Py_TYPE(value) != Py_TYPE(captured)) return false;
  if (PyFloat_CheckExact(value)) {
    return same_double(PyFloat_AS_DOUBLE(value), PyFloat_AS_DOUBLE(captured));
  }
  if (PyLong_CheckExact(value) || PyUnicode_CheckExact(value) || PyBytes_CheckExact(value)) {
    return PyObject_RichCompareBool(value, captured, Py_EQ) == 1;
  }
  // What is equal by its own word may differ in what a graph has inside: -0.0, a NaN, 1 and True.
  PyObject* const same = callback(Callback::kSameValue);
  return has_answered(PyObject_CallFunctionObjArgs(same, value, captured, nullptr), Py_True);
}

Pattern::Pattern(py::handle described) {
  const auto tuple_in = [](py::handle each) {  // what is borrowed from one stays
    if (PyTuple_Check(each.ptr()) == 0) throw py::value_error("not a pattern: no tuple");
    return py::reinterpret_borrow<py::tuple>(each);
  };
  const py::tuple parts = tuple_in(described);
  const auto name = py::cast<std::string>(parts[0]);
  static constexpr std::pair<std::string_view, Kind> kNames[] = {
      {"array", Kind::kArray},     {"value", Kind::kValue},
      {"tuple", Kind::kTuple},     {"list", Kind::kList},
      {"dict", Kind::kDict},       {"object", Kind::kObject},
      {"mapping", Kind::kMapping}, {"registered", Kind::kRegistered}};
  const auto* known = std::find_if(std::begin(kNames), std::end(kNames),
                                   [&](const auto& each) { return each.first == name; });
  if (known == std::end(kNames)) throw py::value_error("not a pattern: " + name);
  kind_ = known->second;
  if (kind_ == Kind::kArray) {
    index_ = py::cast<std::size_t>(parts[1]);
    return;
  }
  const bool is_made = kind_ == Kind::kObject && parts.size() == 3;  // in a result
  const bool is_named = kind_ == Kind::kMapping || (kind_ == Kind::kObject && !is_made);
  const bool has_object = is_named || kind_ == Kind::kValue || kind_ == Kind::kRegistered;
  const bool has_keys = is_named || kind_ == Kind::kDict;
  if (is_named) callback(Callback::kAnother);  // found now, so that build() throws nothing
  std::size_t next = 1;
  if (has_object) object_ = parts[next++].ptr();
  if (kind_ == Kind::kValue) return;
  if (kind_ == Kind::kRegistered || is_made) function_ = parts[next++].ptr();
  if (has_keys) keys_ = tuple_in(parts[next++]).ptr();
  for (const py::handle child : tuple_in(parts[next])) children_.emplace_back(child);
  if (has_keys && py::len(keys_) != children_.size()) throw py::value_error("not a pattern: keys");
  if (kind_ == Kind::kRegistered && children_.size() != 2) throw py::value_error("not a pattern");
}

bool Pattern::matches(PyObject* value, const CallMatch& call) const {
  switch (kind_) {
    case Kind::kArray:
      return read_call_array(value, call.specs[index_], call.arrays[index_]);
    case Kind::kValue:
      return same_value(value, object_.ptr());
    case Kind::kTuple:
    case Kind::kList:
      return matches_sequence(value, call);
    case Kind::kObject:
      // A function may see more attributes than the captured object had.
      return is_of(value, object_) && !has_more_attributes(value, children_.size()) &&
             matches_by_key(value, &PyObject_GetAttr, call);
    case Kind::kRegistered:
      return matches_registered(value, call);
    case Kind::kDict:
    case Kind::kMapping:
      break;
  }
  return matches_entries(value, call);
}

// Takes the reference.
bool Pattern::matches_new(PyObject* value, const CallMatch& call) const {
  const bool same = matches(value, call);
  Py_DECREF(value);
  return same;
}

bool Pattern::matches_keywords(PyObject* keywords, bool in_order, const CallMatch& call) const {
  if (keywords == nullptr) return children_.empty();
  if (in_order) return matches_entries(keywords, call);
  const auto get = [](PyObject* dict, PyObject* key) {
    return Py_XNewRef(PyDict_GetItemWithError(dict, key));
  };
  return PyDict_GET_SIZE(keywords) == static_cast<Py_ssize_t>(children_.size()) &&
         matches_by_key(keywords, get, call);
}

bool Pattern::matches_by_key(PyObject* value, binaryfunc get, const CallMatch& call) const {
  for (std::size_t i = 0; i < children_.size(); ++i) {
    PyObject* item = get(value, key_at(i));
    if (item == nullptr) return ignore_exception();
    if (!children_[i].matches_new(item, call)) return false;
  }
  return true;
}

bool Pattern::matches_sequence(PyObject* value, const CallMatch& call) const {
  const bool exact = kind_ == Kind::kList ? PyList_CheckExact(value) : PyTuple_CheckExact(value);
  if (!exact || PySequence_Fast_GET_SIZE(value) != static_cast<Py_ssize_t>(children_.size())) {
    return false;
  }
  for (std::size_t i = 0; i < children_.size(); ++i) {
    // A comparison may run code that makes a list shorter.
    if (PySequence_Fast_GET_SIZE(value) <= static_cast<Py_ssize_t>(i)) return false;
    PyObject* item = PySequence_Fast_GET_ITEM(value, static_cast<Py_ssize_t>(i));
    if (!children_[i].matches_new(Py_NewRef(item), call)) return false;
  }
  return true;
}

bool Pattern::matches_registered(PyObject* value, const CallMatch& call) const {
  if (!is_of(value, object_)) return false;
  PyObject* parts = PyObject_CallOneArg(function_.ptr(), value);
  if (parts == nullptr) return ignore_exception();
  const bool same = matches_sequence(parts, call);
  Py_DECREF(parts);
  return same;
}

bool Pattern::matches_entries(PyObject* value, const CallMatch& call) const {
  const bool right_type = kind_ == Kind::kDict ? PyDict_CheckExact(value) : is_of(value, object_);
  if (!right_type || PyDict_GET_SIZE(value) != static_cast<Py_ssize_t>(children_.size())) {
    return false;
  }
  // In order, which the function may see.
  Py_ssize_t at = 0;
  PyObject* key = nullptr;
  PyObject* item = nullptr;
  for (std::size_t i = 0; i < children_.size(); ++i) {
    if (PyDict_Next(value, &at, &key, &item) == 0) return false;
    Py_INCREF(key);
    Py_INCREF(item);
    const bool same = same_value(key, key_at(i)) && children_[i].matches(item, call);
    Py_DECREF(item);
    Py_DECREF(key);
    if (!same) return false;
  }
  return true;
}

PyObject* Pattern::build(const std::vector<PyObject*>& arrays) const {
  if (kind_ == Kind::kValue) return Py_NewRef(object_.ptr());
  if (kind_ == Kind::kArray) {
    if (index_ < arrays.size()) return Py_NewRef(arrays[index_]);
    PyErr_SetString(PyExc_IndexError, "fewer arrays than the pattern has");
    return nullptr;
  }
  if (kind_ == Kind::kDict) return build_dict(arrays);
  // A list that grows: the collector knows it, and shows it to others while a constructor runs.
  PyObject* parts = PyList_New(0);
  for (std::size_t i = 0; parts != nullptr && i < children_.size(); ++i) {
    PyObject* item = children_[i].build(arrays);
    if (item == nullptr || PyList_Append(parts, item) != 0) Py_CLEAR(parts);
    Py_XDECREF(item);
  }
  if (parts == nullptr || kind_ == Kind::kList) return parts;
  PyObject* made = kind_ == Kind::kTuple ? PyList_AsTuple(parts) : make_of(parts);
  Py_DECREF(parts);
  return made;
}

// Of a list of the parts.
PyObject* Pattern::make_of(PyObject* parts) const {
  static PyObject* const make = interned("make");
  if (kind_ == Kind::kRegistered) {
    return PyObject_CallMethodObjArgs(function_.ptr(), make, PyList_GET_ITEM(parts, 0),
                                      PyList_GET_ITEM(parts, 1), nullptr);
  }
  if (function_) return PyObject_CallOneArg(function_.ptr(), parts);
  return PyObject_CallFunctionObjArgs(callback(Callback::kAnother), object_.ptr(), keys_.ptr(),
                                      parts, nullptr);
}

PyObject* Pattern::build_dict(const std::vector<PyObject*>& arrays) const {
  PyObject* result = PyDict_New();
  for (std::size_t i = 0; result != nullptr && i < children_.size(); ++i) {
    PyObject* item = children_[i].build(arrays);
    if (item == nullptr || PyDict_SetItem(result, key_at(i), item) != 0) Py_CLEAR(result);
    Py_XDECREF(item);
  }
  return result;
}

}  // namespace gpuprof::bindings
