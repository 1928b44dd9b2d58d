#include "bindings/python/awaitable.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

struct Ready {
  PyObject_HEAD PyObject* value;
};

PyObject* itself(PyObject* self) {
  Py_INCREF(self);
  return self;
}

PyObject* finish(PyObject* self) {
  // As an object: a value that is a tuple would be taken for the exception's arguments.
  PyObject* stop = PyObject_CallOneArg(PyExc_StopIteration, reinterpret_cast<Ready*>(self)->value);
  if (stop != nullptr) {
    PyErr_SetObject(PyExc_StopIteration, stop);
    Py_DECREF(stop);
  }
  return nullptr;
}

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_DECREF(reinterpret_cast<Ready*>(self)->value);
  PyObject_Free(self);
  Py_DECREF(type);
}

PyType_Slot slots[] = {{Py_am_await, reinterpret_cast<void*>(&itself)},
                       {Py_tp_iter, reinterpret_cast<void*>(&itself)},
                       {Py_tp_iternext, reinterpret_cast<void*>(&finish)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(&dealloc)},
                       {0, nullptr}};

PyType_Spec spec = {"gpuprof._core._Ready", sizeof(Ready), 0, Py_TPFLAGS_DEFAULT, slots};

PyObject* make_type() {
  PyObject* type = PyType_FromSpec(&spec);
  if (type == nullptr) throw py::error_already_set();
  reinterpret_cast<PyTypeObject*>(type)->tp_new = nullptr;  // one without a value would crash
  return type;
}

}  // namespace

py::object ready_awaitable(const py::object& value) {
  static PyObject* type = make_type();
  auto* ready = PyObject_New(Ready, reinterpret_cast<PyTypeObject*>(type));
  if (ready == nullptr) throw py::error_already_set();
  ready->value = value.ptr();
  Py_INCREF(ready->value);
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(ready));
}

}  // namespace gpuprof::bindings
