// The calls of gpuprof._trace.writer that come often: a slice for one trace, and one for all that
// are open.
//
// A Python method that checks its arguments and calls a pybind11 function costs 1.7 us a slice, a
// method descriptor a fraction of that. It takes arguments of the usual types; any other call goes
// to the Python function of the same name, which opens the trace, or says what is wrong.
#include <pybind11/pybind11.h>

#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/python/call_arguments.hpp"
#include "bindings/python/callbacks.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/objects.hpp"
#include "bindings/python/switches.hpp"
#include "bindings/ranges/json_args.hpp"
#include "bindings/ranges/scope_events.hpp"
#include "driver/process.hpp"
#include "timing/clock.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using trace::Event;

namespace {

constexpr long long kEndOfTimes = 1LL << 62U;
constexpr long long kEndOfTids = 1LL << 28U;  // from there on they are the GPU's tracks
constexpr double kEndOfMilliseconds = 1e12;

// What a TraceWriter is to these calls.
struct TraceEvents {
  std::uint32_t number = 0;      // of its open trace, or 0
  std::uint32_t generation = 0;  // of the process that opened it

  [[nodiscard]] bool open() const noexcept {
    return number != 0 && generation == driver::fork_generation();
  }
};

// These read a value of the usual kind, and answer false to any other.

bool read_integer(PyObject* value, long long end, long long& into) {
  if (value == nullptr || !PyLong_CheckExact(value)) return false;
  int overflow = 0;
  into = PyLong_AsLongLongAndOverflow(value, &overflow);
  return overflow == 0 && into >= 0 && into < end;
}

bool read_milliseconds(PyObject* value, trace::HostNanoseconds& into) {
  double milliseconds = 0.0;
  long long whole = 0;
  if (value != nullptr && PyFloat_CheckExact(value)) {
    milliseconds = PyFloat_AS_DOUBLE(value);
  } else if (read_integer(value, static_cast<long long>(kEndOfMilliseconds), whole)) {
    milliseconds = static_cast<double>(whole);
  } else {
    return false;
  }
  const bool fits = milliseconds >= 0.0 && milliseconds < kEndOfMilliseconds;  // not NaN
  if (fits) into = std::llrint(milliseconds * 1e6);
  return fits;
}

bool read_text(PyObject* value, std::string_view& into) {
  if (value == nullptr || !PyUnicode_CheckExact(value)) return false;
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value, &size);
  if (text == nullptr) PyErr_Clear();  // a lone surrogate
  into = {text, static_cast<std::size_t>(size)};
  return text != nullptr && size != 0;
}

bool is_absent(PyObject* value) noexcept { return value == nullptr || value == Py_None; }

struct Slice {
  Event event;
  std::string_view name;
  std::string_view category;
  PyObject* args = nullptr;

  bool read(PyObject* given_name, PyObject* given_category, PyObject* given_tid) {
    long long tid = 0;
    if (!read_text(given_name, name)) return false;
    if (!is_absent(given_category) && !read_text(given_category, category)) return false;
    if (!is_absent(given_tid) && !read_integer(given_tid, kEndOfTids, tid)) return false;
    event.tid = static_cast<std::uint32_t>(tid);
    event.depth = trace::kUnknownDepth;
    return true;
  }
};

void note(Slice& slice, std::uint32_t target) {
  slice.event.target = target;
  trace::note(slice.event, slice.name, slice.category, members_of(slice.args));
}

// Calls a Python function with `self` before the arguments, unless it is null.
PyObject* call_checked(const PythonFunction& function, PyObject* self, PyObject* const* arguments,
                       Py_ssize_t count, PyObject* keywords) {
  const Py_ssize_t named = keywords != nullptr ? PyTuple_GET_SIZE(keywords) : 0;
  std::vector<PyObject*> all;
  if (self != nullptr) all.push_back(self);
  all.insert(all.end(), arguments, arguments + count + named);
  return PyObject_Vectorcall(callback(function), all.data(),
                             all.size() - static_cast<size_t>(named), keywords);
}

// False where the arguments are not of the usual kind.
bool read_span(Slice& slice, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords,
               bool of_writer) {
  static constexpr const char* kNames[] = {"name", "duration_ms", "cat", "tid", "begin_ns", "args"};
  CallArguments<6> given;
  trace::HostNanoseconds duration = 0;
  if (!given.read(kNames, 2, arguments, count, keywords) ||
      !slice.read(given.at[0], given.at[2], given.at[3]) ||
      !read_milliseconds(given.at[1], duration)) {
    return false;
  }
  PyObject* const begin_ns = given.at[4];
  slice.args = given.at[5];
  if (!of_writer && (begin_ns != nullptr || slice.args != nullptr)) return false;
  if (!is_absent(slice.args) && !PyDict_CheckExact(slice.args)) return false;
  if (is_absent(begin_ns)) {
    slice.event.end = timing::host_now();
    slice.event.begin = slice.event.end - duration;
    return true;
  }
  long long begin = 0;
  if (!read_integer(begin_ns, kEndOfTimes, begin)) return false;
  slice.event.begin = begin;
  slice.event.end = begin + duration;
  return true;
}

PyObject* writer_span(PyObject* self, PyObject* const* arguments, Py_ssize_t count,
                      PyObject* keywords) {
  const auto& writer = unchecked<TraceEvents>(self);
  Slice slice;
  if (writer.open() && read_span(slice, arguments, count, keywords, true)) {
    note(slice, writer.number);
    return Py_NewRef(Py_None);
  }
  return call_checked(Callback::kWriterSpan, self, arguments, count, keywords);
}

PyObject* trace_span(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count,
                     PyObject* keywords) {
  Slice slice;
  if (!read_span(slice, arguments, count, keywords, false)) {
    return call_checked(Callback::kTraceSpan, nullptr, arguments, count, keywords);
  }
  if (listens(kTrace) && trace_records()) {
    if (slice.event.tid == 0) name_this_thread();
    note(slice, 0);
  }
  return Py_NewRef(Py_None);
}

PyMethodDef writer_span_method{
    "span", as_method(&Guarded<&writer_span>::call), METH_FASTCALL | METH_KEYWORDS,
    R"(span($self, name, duration_ms, *, begin_ns=None, cat=None, tid=None, args=None)
--

Write a slice that ends now, or that begins at a given time.

Slices of one track nest if they come in the order of their ends or of their beginnings;
one that crosses others of its track is shown on a track of its own. What lies before
gpuprof was imported is cut off.

Parameters
----------
name : str
    What to show.
duration_ms : float
    How long it took, in milliseconds.
begin_ns : int, optional
    When it began, by ``time.monotonic_ns()``; None is `duration_ms` before now.
cat : str, optional
    Its category.
tid : int, optional
    The track: a thread's native id, or any other number below 2**28. None and 0 are the
    calling thread.
args : Mapping, optional
    Plain data to show with it.
)"};

PyMethodDef trace_span_method{"trace_span", as_method(&Guarded<&trace_span>::call),
                              METH_FASTCALL | METH_KEYWORDS,
                              R"(trace_span(name, duration_ms, *, cat=None, tid=None)
--

Write a slice that ends now to every trace that is open.

Without one it does nothing. A `TraceWriter` that collects nothing takes its own `span` alone.

Parameters
----------
name : str
    What to show.
duration_ms : float
    How long it took, in milliseconds.
cat : str, optional
    Its category.
tid : int, optional
    The track: a thread's native id, or any other number below 2**28. None and 0 are the calling
    thread.

Returns
-------
None

Raises
------
TypeError, ValueError
    An argument is not what is listed above.

Examples
--------
>>> import gpuprof
>>> gpuprof.trace_span("decode", 1.5, cat="engine")
)"};

}  // namespace

void bind_trace_events(py::module_& module) {
  const auto events = py::class_<TraceEvents>(module, "_TraceEvents")
                          .def(py::init<>())
                          .def(
                              "_set_number",
                              [](TraceEvents& self, std::uint32_t number) {
                                self = {number, driver::fork_generation()};
                              },
                              py::arg("number"));
  add_method(events, writer_span_method);
  add_function(module, trace_span_method);
}

}  // namespace gpuprof::bindings
