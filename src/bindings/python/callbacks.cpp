#include "bindings/python/callbacks.hpp"

#include "bindings/python/errors.hpp"
#include "bindings/python/objects.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using driver::ErrorKind;

namespace {

struct NamedFunction {
  const char* module;
  const char* name;
  PyObject* found = nullptr;
};

NamedFunction& named_function(Callback which) {
  // clang-format off
  static NamedFunction functions[] = {
      {"gpuprof._timing.decorate", "decorate"},
      {"gpuprof._timing.decorate", "name_of"},
      {"gpuprof._timing.scope", "make_scope"},
      {"gpuprof._timing.scope", "remake_scope"},
      {"gpuprof._timing.memory", "begin"},
      {"gpuprof._timing.memory", "end"},
      {"gpuprof._timing.memory", "use_of_sample"},
      {"gpuprof.nvtx", "remake_annotation"},
      {"gpuprof.nvtx.payload", "payload"},
      {"gpuprof._graphs.device_scalar", "plain_number"},
      {"gpuprof._callable.leaves", "same_value"},
      {"gpuprof._trace.checks", "span"},
      {"gpuprof._trace.events", "trace_span"},
      {"gpuprof._trace.writer", "open_as_wanted"},
      {"gpuprof._trace.registry", "name_this_thread"},
      {"gpuprof._timing.listeners", "call_all"},
  };
  // clang-format on
  return functions[static_cast<std::size_t>(which)];
}

// In the order of ErrorKind; what the driver refused has a class by its code.
constexpr const char* kErrorClasses[] = {"CudaUnavailableError", "",
                                         "InvalidStateError",    "ForkedProcessError",
                                         "DriverGoneError",      "NotReplayedError",
                                         "StreamMismatchError"};

}  // namespace

PyObject* callback(Callback which) {
  NamedFunction& function = named_function(which);
  if (function.found == nullptr) {
    py::object found = py::module_::import(function.module).attr(function.name);
    function.found = found.release().ptr();
  }
  return function.found;
}

// A daemon thread may end in here at exit: no object is owned by a destructor.
void notify(Callback which) {
  const NamedFunction& function = named_function(which);
  PyObject* module = PyImport_ImportModule(function.module);
  PyObject* done =
      module != nullptr ? PyObject_CallMethod(module, function.name, nullptr) : nullptr;
  Py_XDECREF(module);
  Py_XDECREF(done);
  ignore_exception();
}

py::tuple reduce_by(Callback remake, py::handle self) {
  return py::make_tuple(py::handle(callback(remake)),
                        py::make_tuple(self.attr("name"), self.attr("_options")));
}

py::object make_exception(const driver::Error& error) {
  const py::module_ errors = py::module_::import("gpuprof.errors");
  if (error.kind() != ErrorKind::kCuda) {
    const char* name = kErrorClasses[static_cast<std::size_t>(error.kind())];
    return errors.attr(name)(from_utf8(error.what()));
  }
  return errors.attr("cuda_error")(error.code(), error.name(), error.call(),
                                   from_utf8(error.detail()));
}

}  // namespace gpuprof::bindings
