#include "bindings/python/objects.hpp"

#include <cstring>

namespace gpuprof::bindings {

namespace py = pybind11;

std::string utf8(PyObject* text) {
  Py_ssize_t size = 0;
  if (const char* bytes = PyUnicode_AsUTF8AndSize(text, &size)) {
    return {bytes, static_cast<std::size_t>(size)};
  }
  PyErr_Clear();
  // A lone surrogate has no UTF-8 form; a pair of them is the character that it stands for.
  const py::object units = owned(PyUnicode_AsEncodedString(text, "utf-16-le", "surrogatepass"));
  int order = -1;
  const py::object whole = owned(PyUnicode_DecodeUTF16(
      PyBytes_AS_STRING(units.ptr()), PyBytes_GET_SIZE(units.ptr()), "replace", &order));
  const char* bytes = checked(PyUnicode_AsUTF8AndSize(whole.ptr(), &size));
  return {bytes, static_cast<std::size_t>(size)};
}

std::string without_nul(std::string text) {
  for (std::size_t at = 0; (at = text.find('\0', at)) != std::string::npos;) {
    text.replace(at, 1, "\xEF\xBF\xBD");  // U+FFFD
  }
  return text;
}

py::str from_utf8(const std::string& text) {
  const auto size = static_cast<Py_ssize_t>(text.size());
  return py::reinterpret_steal<py::str>(
      checked(PyUnicode_DecodeUTF8(text.data(), size, "replace")));
}

PyObject* interned(const char* text) { return checked(PyUnicode_InternFromString(text)); }

void add_function(py::module_& module, PyMethodDef& definition) {
  PyObject* function =
      checked(PyCFunction_NewEx(&definition, nullptr, module.attr("__name__").ptr()));
  module.add_object(definition.ml_name, function);
}

void add_method(py::handle type, PyMethodDef& definition) {
  const py::object method =
      owned(PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type.ptr()), &definition));
  py::setattr(type, definition.ml_name, method);
}

PyTypeObject* add_type(py::module_& module, PyType_Spec& spec) {
  PyObject* type = checked(PyType_FromSpec(&spec));
  module.add_object(std::strrchr(spec.name, '.') + 1, type);
  return reinterpret_cast<PyTypeObject*>(type);
}

PyTypeObject* make_internal_type(PyType_Spec& spec) {
  auto* type = checked(reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec)));
  type->tp_new = nullptr;
  return type;
}

}  // namespace gpuprof::bindings
