// Objects of C++ alone that Python calls: the hooks on autograd's nodes, and what ends a pass.
#pragma once

#include <Python.h>
#include <structmember.h>

#include <memory>
#include <new>

#include "bindings/python/objects.hpp"

namespace gpuprof::bindings::watch {

// An object with a `T`, which has a name `kName` and a static vectorcallfunc `called`.
template <typename T>
struct Callable {
  PyObject_HEAD vectorcallfunc vectorcall;
  T value;

  // A new reference.
  static PyObject* make() {
    static PyTypeObject* const type = make_type();
    auto* made = checked(PyObject_New(Callable, type));
    made->vectorcall = &T::called;
    new (&made->value) T();
    return reinterpret_cast<PyObject*>(made);
  }
  static T& of(PyObject* object) noexcept { return reinterpret_cast<Callable*>(object)->value; }

 private:
  static void dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    std::destroy_at(&of(self));
    PyObject_Free(self);
    Py_DECREF(type);
  }

  static PyTypeObject* make_type() {
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, sizeof(PyObject), READONLY, nullptr},
        {nullptr, 0, 0, 0, nullptr}};
    static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(&dealloc)},
                                  {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
                                  {Py_tp_members, members},
                                  {0, nullptr}};
    static PyType_Spec spec = {
        T::kName, sizeof(Callable), 0,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    return make_internal_type(spec);
  }
};

}  // namespace gpuprof::bindings::watch
