#include <unordered_map>

#include "bindings/bind.hpp"
#include "bindings/python/objects.hpp"

namespace gpuprof::bindings {
namespace {

namespace py = pybind11;

constexpr const char* kMainOnly =
    "gpuprof does not support subinterpreters; import it in the main interpreter";

bool is_main_interpreter() { return PyInterpreterState_Get() == PyInterpreterState_Main(); }

// For an object that came from __new__ alone pybind11 would allocate memory here, and call methods
// on it that nobody initialised.
[[noreturn]] void* refuse_uninitialised(std::size_t /*bytes*/) {
  throw py::type_error("this object was never initialised; call its class, not __new__");
}

using InitInstance = void (*)(py::detail::instance*, const void*);

std::unordered_map<const py::detail::type_info*, InitInstance>& original_inits() {
  static auto& storage = *new std::unordered_map<const py::detail::type_info*, InitInstance>;
  return storage;
}

// Out of memory, the caller's holder deletes the C++ object; pybind11 would delete it once more.
void init_or_forget(py::detail::instance* instance, const void* holder) {
  const auto* type = py::detail::get_type_info(Py_TYPE(reinterpret_cast<PyObject*>(instance)));
  try {
    original_inits().at(type)(instance, holder);
  } catch (const std::exception&) {
    instance->get_value_and_holder(type).value_ptr() = nullptr;
    throw;
  }
}

PyObject* refuse_reduce(PyObject* self, PyObject* /*unused*/) {
  return PyErr_Format(PyExc_TypeError, "cannot pickle '%s' object", Py_TYPE(self)->tp_name);
}

PyMethodDef refuse_reduce_method{"__reduce__", refuse_reduce, METH_NOARGS,
                                 "__reduce__(self) -> str | tuple[typing.Any, ...]"};

// copyreg makes an object of pybind11's own base class, which ends the process.
void refuse_pickling(PyObject* type) {
  if (py::handle(type).attr("__dict__").contains("__reduce__")) return;
  add_method(type, refuse_reduce_method);
}

// Every class of the module, once all are bound.
void harden_classes(const py::module_& module) {
  for (const auto& item : module.attr("__dict__").cast<py::dict>()) {
    if (PyType_Check(item.second.ptr()) == 0) continue;
    py::detail::type_info* type =
        py::detail::get_type_info(reinterpret_cast<PyTypeObject*>(item.second.ptr()));
    if (type == nullptr) continue;
    type->operator_new = &refuse_uninitialised;
    original_inits().emplace(type, type->init_instance);
    type->init_instance = &init_or_forget;
    refuse_pickling(item.second.ptr());
  }
}

}  // namespace
}  // namespace gpuprof::bindings

// The module's own entry point is below: this one is for the main interpreter only.
PYBIND11_MODULE(_core_main, module) {
  using namespace gpuprof::bindings;
  // From Python 3.13 on the entry point runs in the main interpreter also for a subinterpreter.
  if (!is_main_interpreter()) throw py::import_error(kMainOnly);
  module.doc() = "The compiled part of gpuprof. Private: use the names in gpuprof.";
  bind_errors(module);
  bind_driver(module);
  bind_streams(module);
  bind_timing_sample(module);
  bind_timing_scope(module);
  bind_timing_timer(module);
  bind_timing_event(module);
  bind_timing_statistics(module);
  bind_timing_device(module);
  bind_timing_listeners(module);
  bind_nvtx_annotation(module);
  bind_nvtx_functions(module);
  bind_decorated(module);
  bind_trace_writer(module);
  bind_trace_events(module);
  bind_trace_scope(module);
  bind_trace_recorder(module);
  bind_graphs_capture(module);
  bind_graphs_graph(module);
  bind_graphs_nodes(module);
  bind_graphs_scalar(module);
  bind_array_desc(module);
  bind_guards(module);
  bind_cache_entry(module);
  bind_callable(module);
  bind_cupti(module);
  harden_classes(module);
}

// A subinterpreter gets an ImportError on every Python; up to 3.11 pybind11 would wait for ever
// there.
extern "C" PYBIND11_EXPORT PyObject* PyInit__core() {
  if (!gpuprof::bindings::is_main_interpreter()) {
    PyErr_SetString(PyExc_ImportError, gpuprof::bindings::kMainOnly);
    return nullptr;
  }
  return PyInit__core_main();
}
