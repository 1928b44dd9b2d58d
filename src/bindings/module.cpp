#include <sys/syscall.h>
#include <unistd.h>

#include <future>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>

#include "bindings/bind.hpp"
#include "bindings/python/gil.hpp"
#include "bindings/python/objects.hpp"
#include "driver/process.hpp"

namespace gpuprof::bindings {
namespace {

namespace py = pybind11;

constexpr const char* kMainOnly =
    "gpuprof does not support subinterpreters; import it in the main interpreter";

// For an object that came from __new__ alone pybind11 would allocate memory here, and call methods
// on it that nobody initialised.
[[noreturn]] void* refuse_uninitialised(std::size_t /*bytes*/) {
  throw py::type_error("this object was never initialised; call its class, not __new__");
}

using InitInstance = void (*)(py::detail::instance*, const void*);

auto& original_inits() {
  return driver::immortal<std::unordered_map<const py::detail::type_info*, InitInstance>>();
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

void bind_all(py::module_& module) {
  module.doc() = "The compiled part of gpuprof. Private: use the names in gpuprof.";
  bind_errors(module);
  bind_driver(module);
  bind_streams(module);
  bind_timing_sample(module);
  bind_timing_budget(module);
  bind_timing_scope(module);
  bind_timing_timer(module);
  bind_timing_event(module);
  bind_timing_statistics(module);
  bind_timing_device(module);
  bind_timing_listeners(module);
  bind_timing_idle(module);
  bind_watch(module);
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
  bind_callers(module);
  harden_classes(module);
}

// Classes can be registered once in a process. So there is one module object, and an import that
// was cut off, or that another one overtook, comes back to it.
PyObject* filled_module = nullptr;

// No Python code runs in here, so the interpreter lock is held throughout.
void fill_module(PyObject* name) {
  if (filled_module != nullptr) return;
  const struct NoCollection {  // which could run somebody's finalizer
    int was_on = PyGC_Disable();
    ~NoCollection() {
      if (was_on != 0) PyGC_Enable();
    }
  } no_collection;
  auto module = py::reinterpret_steal<py::module_>(checked(PyModule_NewObject(name)));
  bind_all(module);
  filled_module = module.release().ptr();
}

// Python runs signal handlers on the main thread only. One in the middle would find half a module,
// and what it raises would leave one for good, so another thread fills it.
void fill_off_main_thread(PyObject* name) {
  if (::syscall(SYS_gettid) != ::getpid() || is_finalizing()) {
    fill_module(name);
    return;
  }
  std::packaged_task<void()> fill([name] {
    const py::gil_scoped_acquire gil;
    fill_module(name);
  });
  auto filled = fill.get_future();
  try {
    without_gil([&] { std::thread(std::move(fill)).join(); });
  } catch (const std::system_error&) {  // the process may start no more threads
    fill_module(name);
    return;
  }
  filled.get();
}

PyObject* create_module(PyObject* spec, PyModuleDef* /*definition*/) {
  // Up to Python 3.11 pybind11 would wait for ever in a subinterpreter.
  if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
    return PyErr_Format(PyExc_ImportError, kMainOnly);
  }
  try {
    if (filled_module == nullptr) {
      py::detail::ensure_internals();
      fill_off_main_thread(py::object(py::handle(spec).attr("name")).ptr());
    }
    return Py_NewRef(filled_module);
  }
  PYBIND11_CATCH_INIT_EXCEPTIONS
  return nullptr;
}

PyModuleDef_Slot slots[] = {
    {Py_mod_create, reinterpret_cast<void*>(&create_module)},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, nullptr}};

PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_core", nullptr, 0, nullptr, slots, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace gpuprof::bindings

// Not PYBIND11_MODULE: that makes an empty module first, and fills it later.
extern "C" PYBIND11_EXPORT PyObject* PyInit__core() {
  PYBIND11_CHECK_PYTHON_VERSION
  return PyModuleDef_Init(&gpuprof::bindings::module_definition);
}
