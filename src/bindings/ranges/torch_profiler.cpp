#include "bindings/ranges/torch_profiler.hpp"

#include <array>

#include "bindings/python/errors.hpp"
#include "bindings/python/objects.hpp"

namespace gpuprof::bindings::torch_profiler {

namespace py = pybind11;

namespace {

// For the life of the process.
PyObject* module_dict = nullptr;

// A new reference to the name as torch can write it: up to 2.13 it does not escape quotes, and its
// whole file would be invalid JSON. Null with an exception set.
PyObject* writable(PyObject* name) {
  if (PyUnicode_FindChar(name, '"', 0, PyUnicode_GET_LENGTH(name), 1) < 0) {
    return Py_NewRef(name);
  }
  static PyObject* quote = interned("\"");
  static PyObject* apostrophe = interned("'");
  return PyUnicode_Replace(name, quote, apostrophe, -1);
}

}  // namespace

void follow(PyObject* names) {
  if (switches.disabled_for_good) return;
  module_dict = Py_NewRef(names);
  set_listener(kTorchImported, true);
}

bool is_recording() noexcept {
  static PyObject* flag = interned("_is_profiler_enabled");
  return PyDict_GetItemWithError(module_dict, flag) == Py_True;
}

PyObject* enter(PyObject* name) {
  PyObject* type = PyDict_GetItemString(module_dict, "record_function");  // borrowed
  if (type == nullptr) return nullptr;
  PyObject* shown = writable(name);
  PyObject* record = shown != nullptr ? PyObject_CallOneArg(type, shown) : nullptr;
  Py_XDECREF(shown);
  static PyObject* method = interned("__enter__");
  PyObject* entered = record != nullptr ? PyObject_CallMethodNoArgs(record, method) : nullptr;
  if (entered == nullptr) Py_CLEAR(record);
  Py_XDECREF(entered);
  ignore_exception();
  return record;
}

void leave(PyObject* record) {
  if (record == nullptr) return;
  static PyObject* method = interned("__exit__");
  std::array<PyObject*, 4> arguments{record, Py_None, Py_None, Py_None};
  PyObject* result = PyObject_VectorcallMethod(method, arguments.data(), arguments.size(), nullptr);
  Py_DECREF(record);
  Py_XDECREF(result);
  ignore_exception();
}

}  // namespace gpuprof::bindings::torch_profiler
