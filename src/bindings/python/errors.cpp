#include "bindings/python/errors.hpp"

#include <stdexcept>

#include "bindings/bind.hpp"
#include "bindings/python/callbacks.hpp"
#include "bindings/python/objects.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using driver::Error;
using driver::ErrorKind;

void set_error(const Error& error) {
  try {
    const py::object instance = make_exception(error);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(instance.ptr())), instance.ptr());
  } catch (py::error_already_set& failure) {
    failure.restore();
  } catch (const std::exception&) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

void throw_invalid_state(const char* message) { throw Error(ErrorKind::kInvalidState, message); }

void emit_warnings() {
  const TakenException pending;
  try {
    for (const std::string& message : driver::take_warnings()) {
      const py::str text = from_utf8(message);
      if (PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "%U", text.ptr()) != 0) {
        PyErr_WriteUnraisable(nullptr);
      }
    }
  } catch (const std::exception&) {  // out of memory: the warnings are lost
  }
  pending.put_back();
}

void set_current_exception() {
  try {
    throw;
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const py::builtin_exception& error) {
    error.set_error();
  } catch (const Error& error) {
    set_error(error);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

bool ignore_exception() {
  if (PyErr_Occurred() == nullptr) return false;
  if (PyErr_ExceptionMatches(PyExc_Exception) == 0) throw py::error_already_set();
  PyErr_Clear();
  return false;
}

bool has_answered(PyObject* answer, PyObject* expected) {
  if (answer == nullptr) return ignore_exception();
  Py_DECREF(answer);
  return answer == expected;
}

void bind_errors(py::module_& /*module*/) {
  // pybind11 gives the pointer by value.
  // NOLINTNEXTLINE(performance-unnecessary-value-param)
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& error) {
      set_error(error);
    }
  });
}

}  // namespace gpuprof::bindings
