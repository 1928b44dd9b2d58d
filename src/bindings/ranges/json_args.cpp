#include "bindings/ranges/json_args.hpp"

#include <cmath>

#include "bindings/python/objects.hpp"
#include "trace/label.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

constexpr long long kExact = 1LL << 53;  // above it a double skips integers

void append_value(std::string& out, PyObject* value, int depth);

// To look into an array could wait for the GPU.
bool is_array(PyObject* value) {
  return PyObject_HasAttrString(value, "__dlpack__") != 0 ||
         PyObject_HasAttrString(value, "__cuda_array_interface__") != 0;
}

std::string type_only(PyObject* value) { return std::string("<") + Py_TYPE(value)->tp_name + ">"; }

// Never an exception, but an interrupt.
std::string repr_of(PyObject* value) {
  PyObject* text = PyObject_Repr(value);
  if (text == nullptr) {
    py::error_already_set error;
    if (!error.matches(PyExc_Exception)) throw error;
    return type_only(value);
  }
  std::string result = utf8(text);
  Py_DECREF(text);
  return result;
}

void append_float(std::string& out, PyObject* value) {
  const double number = PyFloat_AS_DOUBLE(value);
  if (std::isfinite(number)) {
    char* digits = PyOS_double_to_string(number, 'r', 0, Py_DTSF_ADD_DOT_0, nullptr);
    if (digits == nullptr) throw std::bad_alloc();
    out += digits;
    PyMem_Free(digits);
  } else {
    out += std::isnan(number) ? "\"NaN\"" : (number > 0 ? "\"Infinity\"" : "\"-Infinity\"");
  }
}

void append_int(std::string& out, PyObject* value) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow == 0 && number >= -kExact && number <= kExact) {
    out += std::to_string(number);
  } else if (overflow == 0) {
    out += '"' + std::to_string(number) + '"';
  } else {  // in hexadecimal: Python refuses to write out very long numbers in decimal
    const py::object text = owned(PyNumber_ToBase(value, 16));
    trace::append_json(out, utf8(text.ptr()));
  }
}

void append_sequence(std::string& out, PyObject* sequence, int depth) {
  out += '[';
  // The size is asked each time: a repr may change a list.
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i) {
    if (i > 0) out += ',';
    PyObject* item = PySequence_Fast_GET_ITEM(sequence, i);
    Py_INCREF(item);
    const auto owned = py::reinterpret_steal<py::object>(item);
    append_value(out, item, depth + 1);
  }
  out += ']';
}

void append_members(std::string& out, PyObject* dict, int depth) {
  // A copy, because a repr may change the dict.
  const py::object items = owned(PyDict_Items(dict));
  bool first = true;
  for (const py::handle item : items) {
    if (!first) out += ',';
    first = false;
    PyObject* key = PyTuple_GET_ITEM(item.ptr(), 0);
    trace::append_json(out, PyUnicode_Check(key) ? utf8(key) : repr_of(key));
    out += ':';
    append_value(out, PyTuple_GET_ITEM(item.ptr(), 1), depth + 1);
  }
}

void append_value(std::string& out, PyObject* value, int depth) {
  if (value == Py_None) {
    out += "null";
  } else if (PyBool_Check(value)) {
    out += value == Py_True ? "true" : "false";
  } else if (PyLong_Check(value)) {
    append_int(out, value);
  } else if (PyFloat_Check(value)) {
    append_float(out, value);
  } else if (PyUnicode_Check(value)) {
    trace::append_json(out, utf8(value));
  } else if (depth >= kMaxArgsDepth) {
    out += "\"...\"";
  } else if (is_array(value)) {
    trace::append_json(out, type_only(value));
  } else if (PyList_Check(value) || PyTuple_Check(value)) {
    append_sequence(out, value, depth);
  } else if (PyDict_Check(value)) {
    out += '{';
    append_members(out, value, depth);
    out += '}';
  } else {
    trace::append_json(out, repr_of(value));
  }
}

}  // namespace

void append_member(std::string& out, const char* name, PyObject* value) {
  if (!out.empty()) out += ',';
  trace::append_json(out, name);
  out += ':';
  append_value(out, value, 0);
}

std::string members_of(PyObject* dict) {
  std::string out;
  if (dict != nullptr && PyDict_Check(dict)) append_members(out, dict, 0);
  return out;
}

}  // namespace gpuprof::bindings
