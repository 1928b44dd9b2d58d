// Small helpers around CPython's objects: texts, methods, types. All functions need the interpreter
// lock; they throw pybind11::error_already_set, for lack of memory where nothing else is said.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

#include <string>

namespace gpuprof::bindings {

// What a call of CPython's has made, null where it has set an exception: then that is thrown.
template <typename Object>
Object* checked(Object* made) {
  if (made == nullptr) throw pybind11::error_already_set();
  return made;
}
inline pybind11::object owned(PyObject* made) {
  return pybind11::reinterpret_steal<pybind11::object>(checked(made));
}

// Any tuple, for stubs.
using AnyTuple = pybind11::typing::Tuple<pybind11::object, pybind11::ellipsis>;

// A str as UTF-8; a lone surrogate becomes U+FFFD.
std::string utf8(PyObject* text);

// `text` with U+FFFD for each NUL.
std::string without_nul(std::string text);

// The str of UTF-8, with U+FFFD for what is none, such as the bytes of a path in another encoding.
pybind11::str from_utf8(const std::string& text);

// An interned str, for a static variable.
PyObject* interned(const char* text);

// A function of any signature, for a PyMethodDef whose flags say which.
template <typename Function>
PyCFunction as_method(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

// Puts a function on the module, a method on a class, a new class on the module. The definitions
// must live as long. A pybind11 `.def` costs 50 ns a call, these 10.
void add_function(pybind11::module_& module, PyMethodDef& definition);
void add_method(pybind11::handle type, PyMethodDef& definition);
PyTypeObject* add_type(pybind11::module_& module, PyType_Spec& spec);

// Ends the tp_dealloc of an object of such a type.
inline void free_object(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

// A type of which C++ alone makes objects.
PyTypeObject* make_internal_type(PyType_Spec& spec);

// The C++ object inside an instance of a py::class_ with the default holder, without a type check.
// TypeError for an instance that came from __new__ alone.
template <typename T>
T& unchecked(PyObject* self) {
  void* object = reinterpret_cast<pybind11::detail::instance*>(self)->simple_value_holder[0];
  if (object == nullptr) throw pybind11::type_error("this object was never initialised");
  return *static_cast<T*>(object);
}

// Lets Python collect objects of a class that are part of a cycle: a module may hold the callable
// that guards it. `kInside` gives what is inside of one, which has traverse() and clear().
template <auto kInside>
pybind11::custom_type_setup collectable() {
  // pybind11 shows an object of a new subclass to the collector before it has laid it out.
  static constexpr auto kIsMade = [](PyObject* self) {
    return reinterpret_cast<pybind11::detail::instance*>(self)->simple_layout &&
           pybind11::detail::is_holder_constructed(self);
  };
  return pybind11::custom_type_setup([](PyHeapTypeObject* heap_type) {
    PyTypeObject* type = &heap_type->ht_type;
    type->tp_flags |= Py_TPFLAGS_HAVE_GC;
    type->tp_traverse = [](PyObject* self, visitproc visit, void* arg) {
      Py_VISIT(Py_TYPE(self));
      if (!kIsMade(self)) return 0;
      return kInside(self).traverse(visit, arg);
    };
    type->tp_clear = [](PyObject* self) {
      if (kIsMade(self)) kInside(self).clear();
      return 0;
    };
  });
}

}  // namespace gpuprof::bindings
