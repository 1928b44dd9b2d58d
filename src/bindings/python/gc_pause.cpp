#include "bindings/python/gc_pause.hpp"

#include <pybind11/pybind11.h>

#include <optional>

#include "graphs/capture.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

int asking = 0;
unsigned current_round = 0;
bool installed = false;
bool collecting = false;
std::optional<graphs::RelaxedThread> relaxed;  // of the thread that collects

PyObject* on_collection(PyObject* /*unused*/, PyObject* arguments) {
  const char* phase = nullptr;
  PyObject* info = nullptr;
  if (PyArg_ParseTuple(arguments, "sO", &phase, &info) == 0) return nullptr;
  collecting = phase[2] == 'a';  // "start", not "stop"
  if (!collecting) {
    relaxed.reset();
  } else if (asking > 0) {
    relaxed.emplace();
  }
  Py_RETURN_NONE;
}

PyMethodDef definition{"_on_collection", &on_collection, METH_VARARGS, nullptr};

PyObject* collection_callback() {
  static PyObject* function = PyCFunction_New(&definition, nullptr);
  if (function == nullptr) throw py::error_already_set();
  return function;
}

PyObject* callbacks() {
  static PyObject* list = py::object(py::module_::import("gc").attr("callbacks")).release().ptr();
  return list;
}

void install() {
  if (installed) return;
  if (PyList_Append(callbacks(), collection_callback()) != 0) throw py::error_already_set();
  installed = true;
}

// Not inside a collection, which goes through the list.
void uninstall() noexcept {
  if (!installed || collecting) return;
  PyObject* list = callbacks();
  for (Py_ssize_t i = PyList_GET_SIZE(list) - 1; i >= 0; --i) {
    if (PyList_GET_ITEM(list, i) == collection_callback()) PySequence_DelItem(list, i);
  }
  PyErr_Clear();
  installed = false;
}

}  // namespace

void RelaxedCollections::begin() {
  if (asked_) return;
  install();
  asked_ = true;
  round_ = current_round;
  ++asking;
}

void RelaxedCollections::end() noexcept {
  if (!asked_) return;
  asked_ = false;
  if (round_ == current_round && --asking == 0) uninstall();
}

void end_relaxed_collections() noexcept {
  if (asking == 0) return;
  asking = 0;
  ++current_round;
  uninstall();
}

int relaxed_collections() noexcept { return asking; }

}  // namespace gpuprof::bindings
