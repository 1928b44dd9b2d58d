// gpuprof.Scope as a Python class, and timer() as a function that finds a scope by its name.
#include <pybind11/stl.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <utility>

#include "bindings/bind.hpp"
#include "bindings/python/call_arguments.hpp"
#include "bindings/python/callbacks.hpp"
#include "bindings/python/context_manager.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"
#include "bindings/python/objects.hpp"
#include "bindings/python/switches.hpp"
#include "bindings/timing/listeners.hpp"
#include "bindings/timing/sample.hpp"
#include "bindings/timing/scope.hpp"
#include "bindings/timing/work.hpp"
#include "driver/environment.hpp"
#include "timing/device.hpp"
#include "timing/scope.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using namespace py::literals;
using timing::SampleRef;

namespace {

PyObject* scopes_by_name = nullptr;  // dict, owned by the module

PyMethodDef scope_enter{"__enter__", ContextManager<Scope>::enter, METH_NOARGS,
                        "__enter__(self: gpuprof._core.Scope) -> gpuprof._core.Sample\n\n"
                        "Start the clock and return this entry's sample."};

PyMethodDef scope_exit{
    "__exit__", as_method(&ContextManager<Scope>::exit), METH_FASTCALL,
    "__exit__(self: gpuprof._core.Scope, type: typing.Any, value: typing.Any, traceback: "
    "typing.Any) -> None\n\n"
    "Stop the clock; never waits for the GPU."};

constexpr Py_ssize_t kMaxScopes = 10000;

using TimerArguments = CallArguments<9>;

// A backend and an in_capture that are not given stay null.
bool sort_arguments(TimerArguments& given, PyObject* const* arguments, Py_ssize_t count,
                    PyObject* keywords) {
  static constexpr const char* kNames[] = {"name",    "stream",        "backend",
                                           "enabled", "verify_stream", "in_capture",
                                           "memory",  "flops",         "nbytes"};
  PyObject* const defaults[] = {Py_None, Py_None,  nullptr, Py_None, Py_False,
                                nullptr, Py_False, Py_None, Py_None};
  if (!given.read(kNames, 1, arguments, count, keywords)) return false;
  for (std::size_t i = 0; i < 9; ++i) {
    if (given.at[i] == nullptr) given.at[i] = defaults[i];
  }
  return true;
}

bool is_one_of(PyObject* text, std::initializer_list<const char*> words) {
  return PyUnicode_Check(text) != 0 &&
         std::any_of(words.begin(), words.end(), [text](const char* word) {
           return PyUnicode_CompareWithASCIIString(text, word) == 0;
         });
}

bool is_usual(const TimerArguments& given) {
  const auto& [name, stream, backend, enabled, verify_stream, in_capture, memory, flops, nbytes] =
      given.at;
  if (name != Py_None && (PyUnicode_Check(name) == 0 || PyUnicode_GET_LENGTH(name) == 0)) {
    return false;
  }
  return (backend == nullptr || is_one_of(backend, {"auto", "cpu", "cuda"})) &&
         (enabled == Py_None || PyBool_Check(enabled) != 0) && PyBool_Check(verify_stream) != 0 &&
         (in_capture == nullptr || is_one_of(in_capture, {"auto", "skip", "record"})) &&
         PyBool_Check(memory) != 0;
}

// A scope only watches: where CUDA was lost to a fork or an error it can be made, measures nothing,
// and its first entry says so.
void require_cuda() {
  try {
    initialising(timing::device::require);
  } catch (const driver::Error& error) {
    if (error.kind() == driver::ErrorKind::kUnavailable) throw;
  }
}

py::object make_usual(const TimerArguments& given) {
  const auto& [name_given, stream, backend, enabled, verify_stream, in_capture, memory, flops,
               nbytes] = given.at;
  const bool is_auto = backend == nullptr || is_one_of(backend, {"auto"});
  if (!is_auto && is_one_of(backend, {"cuda"})) require_cuda();  // with no object held yet
  ScopeOptions options;
  py::object name = py::none();
  if (name_given != Py_None) {
    name = owned(PyUnicode_FromObject(name_given));  // of str itself
    options.name = without_nul(utf8(name.ptr()));
  }
  options.stream = py::reinterpret_borrow<py::object>(stream);
  options.backend =
      is_auto ? py::object(py::str("auto")) : py::reinterpret_borrow<py::object>(backend);
  if (enabled != Py_None) options.enabled = enabled == Py_True;
  options.verify_stream = verify_stream == Py_True;
  options.record_in_capture = in_capture != nullptr && is_one_of(in_capture, {"record"});
  options.memory = memory == Py_True;
  options.flops = amount_of(flops, "flops");
  options.nbytes = amount_of(nbytes, "nbytes");
  const bool is_plain = options.name && stream == Py_None && is_auto && enabled == Py_None &&
                        !options.verify_stream && !options.memory && !options.flops &&
                        !options.nbytes &&
                        (in_capture == nullptr || is_one_of(in_capture, {"auto"}));
  py::object scope = py::cast(std::make_unique<Scope>(std::move(options)));
  if (!is_plain || PyDict_GET_SIZE(scopes_by_name) >= kMaxScopes) return scope;
  return py::reinterpret_borrow<py::object>(
      checked(PyDict_SetDefault(scopes_by_name, name.ptr(), scope.ptr())));
}

// The usual call, timer("name") for a name met before, costs a look into a dictionary. Functions,
// other backends and wrong arguments go to Python; nothing else does, so that a signal handler or a
// forked child can make a scope while the package is being imported.
PyObject* timer(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count,
                PyObject* keywords) {
  if (PyObject* known = find_by_name(scopes_by_name, arguments, count, keywords))
    return Py_NewRef(known);
  if (PyErr_Occurred() != nullptr) return nullptr;
  return guarded<PyObject*>(nullptr, [&] {
    TimerArguments given;
    if (sort_arguments(given, arguments, count, keywords) && is_usual(given)) {
      return make_usual(given).release().ptr();
    }
    return PyObject_Vectorcall(callback(Callback::kMakeScope), arguments,
                               static_cast<size_t>(count), keywords);
  });
}

PyMethodDef timer_method{
    "timer", as_method(&timer), METH_FASTCALL | METH_KEYWORDS,
    R"(timer(name=None, *, stream=None, backend='auto', enabled=None, verify_stream=False, in_capture='auto', memory=False, flops=None, nbytes=None, labels=None)
--

Time what runs in a ``with`` block, or in a function.

The result is a reusable scope: entering it records an event and gives this entry's `Sample`,
leaving it records another. The GPU is never waited for; reading ``sample.ms`` is what waits.
``timer("fwd")`` is one object per name, and feeds one row of `stats`.

Parameters
----------
name : str, optional
    The row of the statistics. Nested scopes join their names: ``step/fwd``. Without a name the
    scope measures and stays out of the statistics; as a decorator its name is the function's
    ``__qualname__``.
stream : int or object, optional
    A CUDA stream handle, or an object with ``__cuda_stream__``, ``.cuda_stream`` or ``.ptr``.
    None is the framework's current stream at each entry.
backend : {'auto', 'cuda', 'cpu', 'metal'} or SyncBackend
    The clock. ``'auto'`` is CUDA where this process uses it already, else the CPU clock.
enabled : bool, optional
    None follows `enable` and `disable`; True and False do not.
verify_stream : bool
    Wait for the whole device before and after the block, and raise if the work ran on another
    stream than the timed one. For finding mistakes; it makes the GPU wait.
in_capture : {'auto', 'record', 'skip'}
    What to do inside a stream capture that gpuprof did not open: ``'auto'`` and ``'skip'`` measure
    nothing, ``'record'`` makes the records nodes of the graph, so that ``ms`` is the last replay's.
memory : bool
    Read torch's and CuPy's allocators at each entry and exit: ``sample.memory`` and ``row.memory``
    have the peak and the change in bytes. On the CUDA clock only.
flops : float, optional
    Floating-point operations of each entry; the body may set ``sample.flops`` instead. The row then
    shows TFLOP/s.
nbytes : float, optional
    Bytes that each entry reads and writes, or ``sample.nbytes``; the row then shows GB/s.
labels : Mapping[str, str or number], optional
    A part of the name, such as ``{"batch": 8}`` for a row ``step{batch="8"}``, which exporters show
    as labels. A key has at most 200 values; later ones are ``other``, with one warning.

Returns
-------
Scope

Raises
------
CudaUnavailableError
    ``backend='cuda'`` without a usable driver and device.
TypeError, ValueError
    An argument is not what is listed above.

Examples
--------
>>> import gpuprof
>>> with gpuprof.timer("load", backend="cpu") as sample:
...     data = sorted(range(1000))
>>> sample.ms > 0
True
)"};

std::string describe_scope(const Scope& scope) {
  std::string text = "<gpuprof.timer";
  // The path of the name at the root is the name, cut to what an output may hold.
  if (scope.options().name) {
    text += " '" + timing::shortened_path(*scope.options().name) + "'";
  }
  if (!scope.is_enabled()) text += ", disabled";
  return text + ">";
}

double last_milliseconds(Scope& scope) {
  // A copy, because another exit may replace the scope's own while this one waits.
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const SampleRef last = scope.read_last();
  if (!last) throw_invalid_state("this scope has not been left yet, so there is nothing to read");
  return read_milliseconds(*last.get());
}

py::object last_sample(Scope& scope) {
  const SampleRef& last = scope.read_last();
  return last ? owned(wrap_sample(last)) : py::none();
}

py::dict options_of(const Scope& scope) {
  const ScopeOptions& options = scope.options();
  return py::dict("stream"_a = options.stream, "backend"_a = options.backend,
                  "enabled"_a = options.enabled, "verify_stream"_a = options.verify_stream,
                  "in_capture"_a = options.record_in_capture ? "record" : "auto",
                  "memory"_a = options.memory, "flops"_a = options.flops,
                  "nbytes"_a = options.nbytes);
}

void bind_switches(py::module_& module) {
  module.def(
      "set_enabled",
      [](bool on) {
        timing::scope::enabled.store(on, std::memory_order_relaxed);
        budget::note_switch();
      },
      py::arg("on"), "Switch scopes that follow the global switch on or off.");
  module.def("is_enabled", [] {
    return !switches.disabled_for_good && !is_paused() &&
           timing::scope::enabled.load(std::memory_order_relaxed);
  });
  switches = {driver::is_set("GPUPROF_DISABLE"), driver::is_set("GPUPROF_RELEASE_GIL")};
  module.def("_is_set", &driver::is_set, py::arg("variable"),
             "Whether a variable of the environment says yes: 1, true, on or yes.");
  module.def(
      "_paused",
      [](const py::function& work, const py::args& arguments) {
        // In one call, so that no interrupt can come between the pause and its end.
        const Pause pause;
        return work(*arguments);
      },
      py::arg("work"));
}

}  // namespace

void bind_timing_scope(py::module_& module) {
  py::class_<Scope> scope(module, "Scope",
                          context_manager_setup<&ContextManager<Scope>::vectorcall>(),
                          py::is_final(), "A named span of code, timed each time it is entered.");
  scope
      .def(py::init([](std::optional<std::string> name, py::object stream, py::object backend,
                       std::optional<bool> enabled, bool verify_stream, bool record_in_capture,
                       bool memory, const py::object& flops, const py::object& nbytes) {
             return std::make_unique<Scope>(
                 ScopeOptions{std::move(name), std::move(stream), std::move(backend), enabled,
                              verify_stream, record_in_capture, amount_of(flops.ptr(), "flops"),
                              amount_of(nbytes.ptr(), "nbytes"), memory});
           }),
           py::arg("name"), py::kw_only(), py::arg("stream"), py::arg("backend"),
           py::arg("enabled"), py::arg("verify_stream"), py::arg("record_in_capture"),
           py::arg("memory") = false, py::arg("flops") = py::none(), py::arg("nbytes") = py::none())
      .def_property_readonly("last", &last_sample, "The sample of the last exit, or None.")
      .def_property_readonly("ms", &last_milliseconds,
                             "`last.ms`: waits. Raises InvalidStateError before the first exit.")
      .def_property_readonly(
          "name", [](const Scope& self) { return self.options().name; }, "The name, or None.")
      .def_property_readonly("_options", &options_of)
      .def(
          "__aenter__",
          [](const py::object& self) {
            return ready_awaitable(py::reinterpret_steal<py::object>(self.cast<Scope&>().enter()));
          },
          "Start the clock; what is awaited is this entry's sample.")
      .def(
          "__aexit__",
          [](Scope& self, const py::object& type, const py::object& /*value*/,
             const py::object& /*traceback*/) {
            self.exit(!type.is_none());
            return ready_awaitable(py::none());
          },
          py::arg("type"), py::arg("value"), py::arg("traceback"),
          "Stop the clock; never waits for the GPU.")
      .def("__reduce__",
           [](const py::object& self) { return reduce_by(Callback::kRemakeScope, self); })
      .def("__repr__", &describe_scope);
  add_context_manager(scope, &scope_enter, &scope_exit);

  scopes_by_name = checked(PyDict_New());
  module.add_object("_scopes", py::reinterpret_borrow<py::object>(scopes_by_name));
  add_function(module, timer_method);

  bind_switches(module);
}

}  // namespace gpuprof::bindings
