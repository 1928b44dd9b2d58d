// Context managers as cheap as the interpreter allows.
//
// A pybind11 `.def` costs 50 ns a call and a `with` over two of them 130 to 200. Up to Python 3.13
// `with` makes a bound method for each of __enter__ and __exit__; here both are a descriptor that
// gives the object itself, and the object's vectorcall tells the calls apart by their arguments:
// none is enter, three is exit, one is anything else. From 3.14 on `with` calls method descriptors
// unbound, and without a GIL a shared descriptor's reference count is contended, so there they are
// plain CPython method descriptors.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <type_traits>

#include "bindings/python/callbacks.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/objects.hpp"

namespace gpuprof::bindings {

#if PY_VERSION_HEX < 0x030E0000 && !defined(Py_GIL_DISABLED)
#define GPUPROF_SELF_BINDING 1
#else
#define GPUPROF_SELF_BINDING 0
#endif

// For py::class_<T>(..., context_manager_setup<&vectorcall>()): gives the class's objects a
// vectorcall.
template <vectorcallfunc kCall>
pybind11::custom_type_setup context_manager_setup() {
  return pybind11::custom_type_setup([](PyHeapTypeObject* heap_type) {
    PyTypeObject* type = &heap_type->ht_type;
    type->tp_vectorcall_offset = type->tp_basicsize;
    type->tp_basicsize += static_cast<Py_ssize_t>(sizeof(vectorcallfunc));
    type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    type->tp_call = &PyVectorcall_Call;
    type->tp_alloc = [](PyTypeObject* of, Py_ssize_t items) {
      PyObject* self = PyType_GenericAlloc(of, items);
      if (self != nullptr) {
        *reinterpret_cast<vectorcallfunc*>(reinterpret_cast<char*>(self) +
                                           of->tp_vectorcall_offset) = kCall;
      }
      return self;
    };
  });
}

// The three for a class with enter(), which returns a new reference or nothing, and exit(raised).
template <typename Owner>
struct ContextManager {
  static PyObject* enter(PyObject* self, PyObject* /*unused*/) {
    return guarded<PyObject*>(nullptr, [&] {
      auto& owner = unchecked<Owner>(self);
      if constexpr (std::is_void_v<decltype(owner.enter())>) {
        owner.enter();
        return Py_NewRef(self);
      } else {
        return owner.enter();
      }
    });
  }
  static PyObject* exit(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 3) {
      return PyErr_Format(PyExc_TypeError, "__exit__ takes 3 arguments, got %zd", count);
    }
    return guarded<PyObject*>(nullptr, [&] {
      unchecked<Owner>(self).exit(arguments[0] != Py_None);
      return Py_NewRef(Py_None);
    });
  }
  static PyObject* call(PyObject* self, PyObject* function) {
    return guarded<PyObject*>(nullptr, [&] {
      return PyObject_CallFunctionObjArgs(callback(Callback::kDecorate), self, function, nullptr);
    });
  }
  static PyObject* vectorcall(PyObject* self, PyObject* const* arguments, size_t flagged_count,
                              PyObject* keywords) {
    const Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
    if (keywords != nullptr && PyTuple_GET_SIZE(keywords) != 0) {
      return PyErr_Format(PyExc_TypeError, "a scope takes no keyword arguments when it is called");
    }
#if GPUPROF_SELF_BINDING
    if (count == 0) return enter(self, nullptr);
    if (count == 3) return exit(self, arguments, count);
#endif
    if (count == 1) return call(self, arguments[0]);
    return PyErr_Format(PyExc_TypeError,
                        "a scope is called with the function to decorate, or used in a with "
                        "statement; got %zd arguments",
                        count);
  }
};

// Puts __enter__ and __exit__ on the class. The definitions must live as long as the class; the
// stubs are made from the first lines of their docstrings.
void add_context_manager(pybind11::handle type, PyMethodDef* enter, PyMethodDef* exit);

// An awaitable that is done: `await` on it gives `value` at once, as often as it is asked. For
// __aenter__ and __aexit__ where there is nothing to wait for.
pybind11::object ready_awaitable(const pybind11::object& value);

}  // namespace gpuprof::bindings
