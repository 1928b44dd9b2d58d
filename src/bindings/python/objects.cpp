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
  const auto units = py::reinterpret_steal<py::object>(
      PyUnicode_AsEncodedString(text, "utf-16-le", "surrogatepass"));
  if (!units) throw py::error_already_set();
  int order = -1;
  const auto whole = py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF16(
      PyBytes_AS_STRING(units.ptr()), PyBytes_GET_SIZE(units.ptr()), "replace", &order));
  if (!whole) throw py::error_already_set();
  const char* bytes = PyUnicode_AsUTF8AndSize(whole.ptr(), &size);
  if (bytes == nullptr) throw py::error_already_set();
  return {bytes, static_cast<std::size_t>(size)};
}

std::string without_nul(std::string text) {
  for (std::size_t at = 0; (at = text.find('\0', at)) != std::string::npos;) {
    text.replace(at, 1, "\xEF\xBF\xBD");  // U+FFFD
  }
  return text;
}

py::str from_utf8(const std::string& text) {
  PyObject* decoded =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (decoded == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(decoded);
}

PyObject* interned(const char* text) {
  PyObject* string = PyUnicode_InternFromString(text);
  if (string == nullptr) throw py::error_already_set();
  return string;
}

void add_function(py::module_& module, PyMethodDef& definition) {
  PyObject* function = PyCFunction_NewEx(&definition, nullptr, module.attr("__name__").ptr());
  if (function == nullptr) throw py::error_already_set();
  module.add_object(definition.ml_name, function);
}

void add_method(py::handle type, PyMethodDef& definition) {
  const auto method = py::reinterpret_steal<py::object>(
      PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type.ptr()), &definition));
  if (!method) throw py::error_already_set();
  py::setattr(type, definition.ml_name, method);
}

PyTypeObject* add_type(py::module_& module, PyType_Spec& spec) {
  PyObject* type = PyType_FromSpec(&spec);
  if (type == nullptr) throw py::error_already_set();
  module.add_object(std::strrchr(spec.name, '.') + 1, type);
  return reinterpret_cast<PyTypeObject*>(type);
}

PyTypeObject* make_internal_type(PyType_Spec& spec) {
  auto* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (type == nullptr) throw py::error_already_set();
  type->tp_new = nullptr;
  return type;
}

}  // namespace gpuprof::bindings
