// mark(), range_start() and range_end(), and the switch of NVTX, for Python.
#include <pybind11/typing.h>

#include <memory>
#include <string>

#include "bindings/bind.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/objects.hpp"
#include "bindings/python/switches.hpp"
#include "bindings/ranges/range_attributes.hpp"
#include "bindings/ranges/scope_events.hpp"
#include "bindings/ranges/torch_profiler.hpp"
#include "nvtx/attributes.hpp"
#include "timing/device.hpp"
#include "trace/names.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

// Null where the name shows nothing, which is said once.
std::shared_ptr<RangeAttributes> attributes_of(const char* function, PyObject* const* arguments,
                                               Py_ssize_t count, PyObject* keywords) {
  const RangeArguments read = read_range_arguments(function, arguments, count, keywords);
  require_name(function, read);
  auto attributes = std::make_shared<RangeAttributes>(read);
  attributes->warn_if_invalid();
  return attributes->is_valid() ? attributes : nullptr;
}

// Where nobody listens, the usual call has only its arguments looked at.
bool is_heard_by_nobody(PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  return !listens(kNvtx) && !listens(kTrace) && count == 1 && keywords == nullptr &&
         PyUnicode_Check(arguments[0]) && PyUnicode_GET_LENGTH(arguments[0]) != 0;
}

PyObject* mark(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count,
               PyObject* keywords) {
  if (!is_heard_by_nobody(arguments, count, keywords)) {
    const auto attributes = attributes_of("mark", arguments, count, keywords);
    if (attributes && listens(kNvtx)) attributes->range().mark();
    if (attributes && listens(kTrace) && trace_records()) {
      const driver::HostNanoseconds now = driver::host_now();
      name_this_thread();
      attributes->trace(trace::Kind::kInstant, now, now);
    }
    emit_pending_warnings();
  }
  return Py_NewRef(Py_None);
}

PyObject* range_start(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count,
                      PyObject* keywords) {
  std::uint64_t number = 0;
  if (!is_heard_by_nobody(arguments, count, keywords)) {
    const auto attributes = attributes_of("range_start", arguments, count, keywords);
    if (attributes) number = started_ranges::start(attributes);
    emit_pending_warnings();
  }
  return PyLong_FromUnsignedLongLong(number);
}

PyObject* range_end(PyObject* /*module*/, PyObject* number) {
  if (!PyLong_Check(number)) {
    throw py::type_error(std::string("id: expected the int that range_start returned, got ") +
                         Py_TYPE(number)->tp_name);
  }
  const std::uint64_t id = PyLong_AsUnsignedLongLong(number);
  const bool overflowed = PyErr_Occurred() != nullptr;
  PyErr_Clear();
  const bool ended = !overflowed && (id == 0 || started_ranges::end(id));
  if (!ended) {
    driver::warn_once(driver::Warning::kForeignRange,
                      "gpuprof: range_end was given a number of which no range is open: it was "
                      "ended before, or range_start never returned it");
  }
  emit_pending_warnings();
  return Py_NewRef(Py_None);
}

PyMethodDef mark_method{
    "mark", as_method(&Guarded<&mark>::call), METH_FASTCALL | METH_KEYWORDS,
    R"(mark(name, *, color=None, category=None, payload=None, domain=None, args=None)
--

Note a moment, for tools and traces.

Parameters
----------
name : str
    What tools show; of more than 4 KiB the beginning. One that is empty or has a NUL in it warns
    once and shows nothing.
color : str or int, optional
    As for `annotate`, like the rest.
category : str, optional
    A group of ranges.
payload : int, float or array, optional
    A number beside the name, or several: a list, tuple, range, bytes or an array in host memory
    (NumPy, `array.array`), copied now. Traces show up to 64 numbers.
domain : str, optional
    The NVTX domain; None is ``'gpuprof'``, ``''`` the one of ranges that name none.
args : dict, optional
    More values for traces, by names.

Returns
-------
None

Raises
------
TypeError, ValueError
    An argument is not what `annotate` takes.

Examples
--------
>>> import gpuprof
>>> gpuprof.mark("out of memory", color="red", args={"wanted": 1 << 30})
)"};

PyMethodDef range_start_method{
    "range_start", as_method(&Guarded<&range_start>::call), METH_FASTCALL | METH_KEYWORDS,
    R"(range_start(name, *, color=None, category=None, payload=None, domain=None, args=None)
--

Start a range that may end on another thread and may cross others.

Parameters
----------
name : str
    What tools show; of more than 4 KiB the beginning. One that is empty or has a NUL in it warns
    once and shows nothing.
color : str or int, optional
    As for `annotate`, like the rest.
category : str, optional
    A group of ranges.
payload : int, float or array, optional
    A number beside the name, or several: a list, tuple, range, bytes or an array in host memory
    (NumPy, `array.array`), copied now. Traces show up to 64 numbers.
domain : str, optional
    The NVTX domain; None is ``'gpuprof'``, ``''`` the one of ranges that name none.
args : dict, optional
    More values for traces, by names.

Returns
-------
int
    What `range_end` takes; 0 if nobody listens.

Raises
------
TypeError, ValueError
    An argument is not what `annotate` takes.

Examples
--------
>>> import gpuprof
>>> prefetch = gpuprof.range_start("prefetch")
>>> gpuprof.range_end(prefetch)
)"};

PyMethodDef range_end_method{"range_end", &Guarded<&range_end>::call, METH_O,
                             R"(range_end(id, /)
--

End a range of `range_start`, on any thread.

Parameters
----------
id : int
    What `range_start` returned. One that is not open (ended twice) warns once per process.

Returns
-------
None

Raises
------
TypeError
    `id` is not an int.

Examples
--------
>>> import gpuprof
>>> gpuprof.range_end(gpuprof.range_start("prefetch"))
)"};

}  // namespace

void bind_nvtx_functions(py::module_& module) {
  for (PyMethodDef* method : {&mark_method, &range_start_method, &range_end_method}) {
    add_function(module, *method);
  }
  module.def(
      "nvtx_set_enabled", [](bool on) { set_listener(kNvtx, on && !switches.disabled_for_good); },
      py::arg("on"));
  module.def("nvtx_is_enabled", [] { return listens(kNvtx); });
  module.def("nvtx_tool_listens", [] { return nvtx::tool_listens(); });
  module.def(
      "nvtx_name_thread",
      [](std::uint32_t tid, const std::string& name) {
        if (!listens(kNvtx)) return;
        nvtx::name_thread(tid, nvtx::shown_label(without_nul(name)));
      },
      py::arg("tid"), py::arg("name"));
  module.def(
      "_name_stream",
      [](int device, std::uintptr_t stream, py::handle name) {
        const std::string text = utf8(name.ptr());
        const std::uint64_t key = trace::stream_key(stream, timing::device::stream_id(stream));
        trace::name_stream(device, key, text);
        if (listens(kNvtx)) nvtx::name_stream(stream, nvtx::shown_label(without_nul(text)));
      },
      py::arg("device"), py::arg("stream"), py::arg("name"), "In traces and in tools.");
  module.def("nvtx_last_push_result", &nvtx::last_push_result);
  module.def(
      "_follow_profiler",
      [](const py::typing::Dict<py::str, py::object>& names) {
        torch_profiler::follow(names.ptr());
      },
      py::arg("names"));
  module.def(
      "nvtx_warn_no_tool",
      [](const std::string& message) {
        driver::warn_once(driver::Warning::kNvtxNoTool, message);
        emit_pending_warnings();
      },
      py::arg("message"));
}

}  // namespace gpuprof::bindings
