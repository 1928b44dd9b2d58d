#include "bindings/python/bindings_lock.hpp"

#ifdef Py_GIL_DISABLED

#include <unordered_map>

#include "bindings/python/errors.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

using Call = py::handle (*)(py::detail::function_call&);
using Destroy = void (*)(py::detail::value_and_holder&);

// Written while the module is being imported, only read after that.
std::unordered_map<const py::detail::function_record*, Call>& calls() {
  static auto& storage = *new std::unordered_map<const py::detail::function_record*, Call>;
  return storage;
}
std::unordered_map<const py::detail::type_info*, Destroy>& destructions() {
  static auto& storage = *new std::unordered_map<const py::detail::type_info*, Destroy>;
  return storage;
}

py::handle call_locked(py::detail::function_call& call) {
  const Call original = calls().find(&call.func)->second;
  BindingsLock lock;
  lock.take();
  py::handle result;
  try {
    result = original(call);
  } catch (const std::exception&) {  // not (...): a thread that ends at exit must unwind on
    lock.give_back();
    throw;
  }
  lock.give_back();
  return result;
}

void destroy_locked(py::detail::value_and_holder& object) {
  const Destroy original = destructions().find(object.type)->second;
  BindingsLock lock;
  lock.take();
  original(object);
  lock.give_back();
}

// A function of pybind11's, with its overloads; anything else is left alone.
void lock_function(py::handle function) {
  const py::handle plain = py::detail::get_function(function);
  if (!plain || PyCFunction_Check(plain.ptr()) == 0) return;
  PyObject* inside = PyCFunction_GET_SELF(plain.ptr());
  if (inside == nullptr) return;
  auto* record = py::detail::function_record_ptr_from_PyObject(inside);
  for (; record != nullptr; record = record->next) {
    if (record->impl == &call_locked) continue;
    calls().emplace(record, record->impl);
    record->impl = &call_locked;
  }
}

void lock_class(py::handle type) {
  if (auto* info = py::detail::get_type_info(reinterpret_cast<PyTypeObject*>(type.ptr()))) {
    destructions().emplace(info, info->dealloc);
    info->dealloc = &destroy_locked;
  }
  const py::object items = type.attr("__dict__").attr("items")();
  for (const py::handle item : items) {
    const py::object value = item.cast<py::tuple>()[1];
    lock_function(value);
    for (const char* part : {"fget", "fset", "fdel", "__func__"}) {
      if (py::hasattr(value, part)) lock_function(value.attr(part));
    }
  }
}

}  // namespace

void renew_bindings_lock() {
  PyObject* object = PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
  if (object == nullptr) throw py::error_already_set();
  BindingsLock::object = object;  // the one before stays: a section may be open on it
}

void make_bindings_lock() {
  renew_bindings_lock();
  const auto os = py::module_::import("os");
  if (py::hasattr(os, "register_at_fork")) {
    os.attr("register_at_fork")(py::arg("after_in_child") = py::cpp_function(&renew_bindings_lock));
  }
}

void lock_functions(const py::module_& module) {
  for (const auto& item : module.attr("__dict__").cast<py::dict>()) {
    if (PyType_Check(item.second.ptr()) != 0) {
      lock_class(item.second);
    } else {
      lock_function(item.second);
    }
  }
}

}  // namespace gpuprof::bindings

#endif
