#include "bindings/python/callbacks.hpp"

#include "bindings/python/errors.hpp"
#include "bindings/python/objects.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using driver::ErrorKind;

namespace {

// In the order of ErrorKind; what the driver refused has a class by its code.
constexpr const char* kErrorClasses[] = {"CudaUnavailableError", "",
                                         "InvalidStateError",    "ForkedProcessError",
                                         "DriverGoneError",      "NotReplayedError",
                                         "StreamMismatchError"};

}  // namespace

PyObject* callback(const PythonFunction& function) {
  if (function.found == nullptr) {
    py::object found = py::module_::import(function.module).attr(function.name);
    function.found = found.release().ptr();
  }
  return function.found;
}

// A daemon thread may end in here at exit: no object is owned by a destructor.
void notify(const PythonFunction& function) {
  PyObject* module = PyImport_ImportModule(function.module);
  PyObject* done =
      module != nullptr ? PyObject_CallMethod(module, function.name, nullptr) : nullptr;
  Py_XDECREF(module);
  Py_XDECREF(done);
  ignore_exception();
}

py::tuple reduce_by(const PythonFunction& remake, py::handle self) {
  return py::make_tuple(py::handle(callback(remake)),
                        py::make_tuple(self.attr("name"), self.attr("_options")));
}

py::object make_exception(const driver::Error& error) {
  const py::module_ errors = py::module_::import(kErrorsModule);
  if (error.kind() != ErrorKind::kCuda) {
    const char* name = kErrorClasses[static_cast<std::size_t>(error.kind())];
    return errors.attr(name)(from_utf8(error.what()));
  }
  return errors.attr("cuda_error")(error.code(), error.name(), error.call(),
                                   from_utf8(error.detail()));
}

}  // namespace gpuprof::bindings
