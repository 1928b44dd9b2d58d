#include "bindings/ranges/torch_profiler.hpp"

#include <pybind11/pybind11.h>

#include <array>

#include "bindings/python/errors.hpp"
#include "bindings/python/objects.hpp"
#include "bindings/python/switches.hpp"

namespace gpuprof::bindings::torch_profiler {

namespace py = pybind11;

namespace {

// For the life of the process, once it was seen whole.
PyObject* module_dict = nullptr;

PyObject* flag_name() {
  static Interned name("_is_profiler_enabled");
  return name;
}

// A new reference to the name as torch can write it: up to 2.13 it does not escape quotes, and its
// whole file would be invalid JSON. Null with an exception set.
PyObject* writable(PyObject* name) {
  if (PyUnicode_FindChar(name, '"', 0, PyUnicode_GET_LENGTH(name), 1) < 0) {
    return Py_NewRef(name);
  }
  static Interned quote("\"");
  static Interned apostrophe("'");
  return PyUnicode_Replace(name, quote, apostrophe, -1);
}

}  // namespace

void look() {
  if (switches.disabled_for_good || listens(kTorchImported)) return;
  static Interned module_name("torch.autograd.profiler");
  PyObject* module = dict_item(PyImport_GetModuleDict(), module_name);
  PyObject* names =
      module != nullptr && PyModule_Check(module) ? Py_NewRef(PyModule_GetDict(module)) : nullptr;
  Py_XDECREF(module);
  // Without the flag it is being imported now.
  if (names == nullptr || PyDict_GetItemWithError(names, flag_name()) == nullptr) {
    Py_XDECREF(names);
    PyErr_Clear();
    return;
  }
  module_dict = names;
  set_listener(kTorchImported, true);
}

bool is_recording() noexcept {
  return PyDict_GetItemWithError(module_dict, flag_name()) == Py_True;
}

PyObject* enter(PyObject* name) {
  static Interned type_name("record_function");
  PyObject* type = dict_item(module_dict, type_name);
  if (type == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  PyObject* shown = writable(name);
  PyObject* record = shown != nullptr ? PyObject_CallOneArg(type, shown) : nullptr;
  Py_XDECREF(shown);
  Py_DECREF(type);
  if (record == nullptr) {
    ignore_exception();
    return nullptr;
  }
  static Interned method("__enter__");
  PyObject* entered = PyObject_CallMethodNoArgs(record, method);
  if (entered == nullptr) {
    Py_DECREF(record);
    ignore_exception();
    return nullptr;
  }
  Py_DECREF(entered);
  return record;
}

void leave(PyObject* record) {
  if (record == nullptr) return;
  static Interned method("__exit__");
  std::array<PyObject*, 4> arguments{record, Py_None, Py_None, Py_None};
  PyObject* result = PyObject_VectorcallMethod(method, arguments.data(), arguments.size(), nullptr);
  Py_DECREF(record);
  if (result == nullptr) {
    ignore_exception();
    return;
  }
  Py_DECREF(result);
}

}  // namespace gpuprof::bindings::torch_profiler
