#include "bindings/python/context_manager.hpp"

#include <structmember.h>

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

struct Ready {
  PyObject_HEAD PyObject* value;
};

PyObject* ready_itself(PyObject* self) { return Py_NewRef(self); }

PyObject* finish_ready(PyObject* self) {
  // As an object: a value that is a tuple would be taken for the exception's arguments.
  PyObject* stop = PyObject_CallOneArg(PyExc_StopIteration, reinterpret_cast<Ready*>(self)->value);
  if (stop != nullptr) {
    PyErr_SetObject(PyExc_StopIteration, stop);
    Py_DECREF(stop);
  }
  return nullptr;
}

void dealloc_ready(PyObject* self) {
  Py_DECREF(reinterpret_cast<Ready*>(self)->value);
  free_object(self);
}

PyType_Slot ready_slots[] = {{Py_am_await, reinterpret_cast<void*>(&ready_itself)},
                             {Py_tp_iter, reinterpret_cast<void*>(&ready_itself)},
                             {Py_tp_iternext, reinterpret_cast<void*>(&finish_ready)},
                             {Py_tp_dealloc, reinterpret_cast<void*>(&dealloc_ready)},
                             {0, nullptr}};

PyType_Spec ready_spec = {"gpuprof._core._Ready", sizeof(Ready), 0, Py_TPFLAGS_DEFAULT,
                          ready_slots};

#if GPUPROF_SELF_BINDING

struct SelfDescriptor {
  PyObject_HEAD vectorcallfunc call;
  const char* name;
  const char* doc;
};

PyObject* descriptor_get(PyObject* descriptor, PyObject* object, PyObject* /*type*/) {
  return Py_NewRef(object != nullptr ? object : descriptor);
}

// ExitStack calls type(cm).__exit__(cm, ...): that must go on through the object's own vectorcall.
PyObject* descriptor_call(PyObject* /*descriptor*/, PyObject* const* arguments,
                          size_t flagged_count, PyObject* keywords) {
  const Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
  if (count < 1) {
    PyErr_SetString(PyExc_TypeError, "a context manager's method needs its object");
    return nullptr;
  }
  return PyObject_Vectorcall(arguments[0], arguments + 1, static_cast<size_t>(count - 1), keywords);
}

PyMemberDef descriptor_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(SelfDescriptor, call), READONLY, nullptr},
    {"__name__", T_STRING, offsetof(SelfDescriptor, name), READONLY, nullptr},
    {"__doc__", T_STRING, offsetof(SelfDescriptor, doc), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot descriptor_slots[] = {{Py_tp_descr_get, reinterpret_cast<void*>(&descriptor_get)},
                                  {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
                                  {Py_tp_dealloc, reinterpret_cast<void*>(&free_object)},
                                  {Py_tp_members, descriptor_members},
                                  {0, nullptr}};

PyType_Spec descriptor_spec = {"gpuprof._core._SelfDescriptor", sizeof(SelfDescriptor), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, descriptor_slots};

py::object make_descriptor(const PyMethodDef& method) {
  static PyTypeObject* type = make_internal_type(descriptor_spec);
  auto* descriptor = checked(PyObject_New(SelfDescriptor, type));
  descriptor->call = &descriptor_call;
  descriptor->name = method.ml_name;
  descriptor->doc = method.ml_doc;
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(descriptor));
}

#endif

}  // namespace

void add_context_manager(py::handle type, PyMethodDef* enter, PyMethodDef* exit) {
  for (PyMethodDef* method : {enter, exit}) {
#if GPUPROF_SELF_BINDING
    py::setattr(type, method->ml_name, make_descriptor(*method));
#else
    add_method(type, *method);
#endif
  }
}

py::object ready_awaitable(const py::object& value) {
  static PyTypeObject* type = make_internal_type(ready_spec);  // one without a value would crash
  auto* ready = checked(PyObject_New(Ready, type));
  ready->value = Py_NewRef(value.ptr());
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(ready));
}

}  // namespace gpuprof::bindings
