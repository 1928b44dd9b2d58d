// The `with` block of a capture, as far as it has to be C: an interrupt can come before the first
// line of any Python function, and so before that of an __exit__ that would end the capture.
//
// A subclass has _guard, which is None until _enter() sets it, _leave(kind, error, traceback), and
// _discard(), which undoes whatever those two have left and may be called at any time. An exception
// out of them is raised after _discard(), except that a second _enter() touches nothing.
#include <Python.h>

#include "bindings/bind.hpp"
#include "bindings/python/objects.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

constexpr int kTries = 3;  // another interrupt may cut one short

// With an exception set; afterwards it is, or what came out of the last _discard() instead.
void discard_block(PyObject* self) {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  for (int tries = 0; tries < kTries; ++tries) {
    PyObject* done = PyObject_CallMethod(self, "_discard", nullptr);
    if (done != nullptr) {
      Py_DECREF(done);
      break;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    PyErr_Fetch(&type, &value, &traceback);
  }
  PyErr_Restore(type, value, traceback);
}

PyObject* enter_block(PyObject* self, PyObject* /*unused*/) {
  PyObject* guard = PyObject_GetAttrString(self, "_guard");
  if (guard == nullptr) return nullptr;
  const bool is_first = guard == Py_None;  // else what is open now is not this call's
  Py_DECREF(guard);
  PyObject* result = PyObject_CallMethod(self, "_enter", nullptr);
  if (result == nullptr && is_first) discard_block(self);
  return result;
}

PyObject* leave_block(PyObject* self, PyObject* arguments) {
  PyObject* method = PyObject_GetAttrString(self, "_leave");
  PyObject* result = method != nullptr ? PyObject_CallObject(method, arguments) : nullptr;
  Py_XDECREF(method);
  if (result == nullptr) discard_block(self);
  return result;
}

PyMethodDef block_methods[] = {
    {"__enter__", &enter_block, METH_NOARGS,
     "__enter__(self: gpuprof._core._CaptureBlock) -> typing.Any\n\nBegin the capture."},
    {"__exit__", &leave_block, METH_VARARGS,
     "__exit__(self: gpuprof._core._CaptureBlock, type: typing.Any, value: typing.Any, traceback: "
     "typing.Any) -> None\n\nEnd the capture, or discard it after an exception."},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot block_slots[] = {{Py_tp_methods, block_methods},
                             {Py_tp_doc, const_cast<char*>("The block of a capture.")},
                             {0, nullptr}};
PyType_Spec block_spec{"gpuprof._core._CaptureBlock", sizeof(PyObject), 0,
                       Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, block_slots};

}  // namespace

void bind_graphs_block(py::module_& module) { add_type(module, block_spec); }

}  // namespace gpuprof::bindings
