// Which line of Python each thread was in, and since when: so a launch, whose thread and time CUPTI
// records, has its caller.
//
// Functions of sys.monitoring, which Python calls with the interpreter lock where a line begins,
// and where a function starts and returns. No launch is as short as kShortest, so of lines that
// follow each other faster only the last is kept: a loop in Python fills no memory. Past a limit
// nothing is noted, and lines have no events.
//
// What it gets wrong: an exception that leaves a function has no event, so what is launched after
// it in the same line of its caller counts for the line that raised.
#include <Python.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/python/objects.hpp"
#include "driver/process.hpp"
#include "timing/clock.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using timing::HostNanoseconds;

namespace {

constexpr HostNanoseconds kShortest = 500;
constexpr std::size_t kMostOpen = 4096;     // of endless recursion the innermost functions stay
constexpr std::size_t kMostCodes = 10'000;  // which stay in memory; a program may make ever more

// As Python unpacks it.
struct CallerLine {
  HostNanoseconds since;
  std::uint32_t line;
  std::uint32_t code;  // from 1 on; 0: none of those that are followed
  std::uint32_t thread;
  std::uint32_t unused;
};

// Everything under the interpreter lock.
struct CallerLines {
  std::uint64_t number = 0;  // of the recording; 0: there is none
  std::uint32_t generation = 0;
  std::size_t limit = 0;
  HostNanoseconds full_since = 0;
  py::object choose;   // whether a code is followed; gives it its events
  py::object disable;  // what switches an event off for good
  py::list codes;
  std::unordered_map<PyObject*, std::uint32_t> numbers;
  std::deque<CallerLine> lines;  // whose elements never move
};
CallerLines* all = nullptr;

struct OpenFunction {
  PyObject* code = nullptr;
  std::uint32_t number = 0;
  std::uint32_t line = 0;
};

struct OpenFunctions {
  std::uint64_t recording = 0;
  CallerLine* last = nullptr;
  std::vector<OpenFunction> open;
};
thread_local OpenFunctions of_thread;

void note_line(const OpenFunction& now_in) {
  CallerLine* last = of_thread.last;
  const HostNanoseconds now = timing::monotonic_now();
  if (last != nullptr && last->code == now_in.number && last->line == now_in.line) return;
  if (last == nullptr || now - last->since >= kShortest) {
    if (all->lines.size() >= all->limit) {
      all->full_since = now;
      return;
    }
    last = of_thread.last = &all->lines.emplace_back();
  }
  *last = {now, now_in.line, now_in.number, trace::thread_id(), 0};
}

// Leaves the functions above the innermost one of this code, if there is one: they ended by an
// exception.
bool leave_above(PyObject* code) {
  auto& open = of_thread.open;
  const auto found = std::find_if(open.rbegin(), open.rend(),
                                  [=](const OpenFunction& each) { return each.code == code; });
  if (found == open.rend()) return false;
  open.erase(found.base(), open.end());
  return true;
}

void push_open(PyObject* code, std::uint32_t number) {
  auto& open = of_thread.open;
  if (open.size() >= kMostOpen) open.erase(open.begin());
  open.push_back({code, number, 0});
}

// The number of a code; 0 if it is not followed.
std::uint32_t code_number(py::handle code) {
  if (const auto found = all->numbers.find(code.ptr()); found != all->numbers.end()) {
    return found->second;
  }
  if (all->codes.size() >= kMostCodes) return 0;
  const std::uint64_t recording = all->number;
  const bool is_followed = all->choose(code).is(py::bool_(true));
  if (!is_followed || all->number != recording) return 0;  // it may have ended
  all->codes.append(code);
  const auto number = static_cast<std::uint32_t>(all->codes.size());
  return all->numbers.emplace(code.ptr(), number).first->second;
}

// Calls `work(code)`, whose answer says whether the event is to come again.
template <typename Work>
PyObject* told(PyObject* const* args, Py_ssize_t count, Work&& work) {
  if (all == nullptr || all->number == 0 || count < 2) Py_RETURN_NONE;
  try {
    if (all->generation != driver::fork_generation()) return all->disable.inc_ref().ptr();
    if (of_thread.recording != all->number) of_thread = {all->number, nullptr, {}};
    if (all->full_since != 0 || !work(args[0])) return all->disable.inc_ref().ptr();
    Py_RETURN_NONE;
  } catch (py::error_already_set& error) {
    // A code that could not be chosen, as `stop` came first: it is not followed.
    if (error.matches(PyExc_Exception)) return all->disable.inc_ref().ptr();
    error.restore();
    return nullptr;
  } catch (const std::exception&) {
    return PyErr_NoMemory();
  }
}

PyObject* on_code_start(PyObject* /*self*/, PyObject* const* args, Py_ssize_t count) {
  return told(args, count, [](PyObject* code) {
    const std::uint32_t number = code_number(code);
    if (number != 0) push_open(code, number);
    return number != 0;
  });
}

PyObject* on_code_line(PyObject* /*self*/, PyObject* const* args, Py_ssize_t count) {
  return told(args, count, [=](PyObject* code) {
    if (!leave_above(code)) {  // a generator that was thrown into
      const auto found = all->numbers.find(code);
      if (found == all->numbers.end()) return true;
      push_open(code, found->second);
    }
    OpenFunction& open = of_thread.open.back();
    open.line = static_cast<std::uint32_t>(PyLong_AsUnsignedLongMask(args[1]));
    note_line(open);
    return true;
  });
}

PyObject* on_code_return(PyObject* /*self*/, PyObject* const* args, Py_ssize_t count) {
  return told(args, count, [](PyObject* code) {
    auto& open = of_thread.open;
    if (leave_above(code)) open.pop_back();
    note_line(open.empty() ? OpenFunction{} : open.back());
    return true;
  });
}

PyMethodDef caller_functions[] = {
    {"_callers_on_start", as_method(on_code_start), METH_FASTCALL,
     "_callers_on_start(code: typing.Any, offset: int) -> typing.Any"},
    {"_callers_on_line", as_method(on_code_line), METH_FASTCALL,
     "_callers_on_line(code: typing.Any, line: int) -> typing.Any"},
    {"_callers_on_return", as_method(on_code_return), METH_FASTCALL,
     "_callers_on_return(code: typing.Any, offset: int, value: typing.Any = None) -> typing.Any"},
};

void start_callers(py::object choose, py::object disable, std::size_t limit) {
  static std::uint64_t newest = 0;
  if (all == nullptr) all = new CallerLines;
  all->choose = std::move(choose);
  all->disable = std::move(disable);
  all->generation = driver::fork_generation();
  all->limit = limit;
  all->full_since = 0;
  all->number = ++newest;
  of_thread = {newest, nullptr, {}};
}

// Follows what runs already, whose start was not told: of this thread with the line that it is in,
// of others, 0, from the next line on.
void follow_running(py::handle code, std::uint32_t line) {
  const std::uint32_t number = code_number(code);
  if (number == 0 || line == 0) return;
  push_open(code.ptr(), number);
  of_thread.open.back().line = line;
}

AnyTuple stop_callers() {
  all->number = 0;
  std::string bytes;
  bytes.reserve(all->lines.size() * sizeof(CallerLine));
  for (const CallerLine& each : all->lines) {
    bytes.append(reinterpret_cast<const char*>(&each), sizeof each);
  }
  all->lines.clear();
  all->numbers.clear();
  const py::object choose = std::move(all->choose);  // which may hold the caller
  return py::make_tuple(py::bytes(bytes), std::exchange(all->codes, py::list()), all->full_since);
}

}  // namespace

void bind_callers(py::module_& module) {
  for (PyMethodDef& function : caller_functions) add_function(module, function);
  module.def("_callers_start", &start_callers, py::arg("choose"), py::arg("disable"),
             py::arg("limit"), "Note the lines of functions from now on, so many at most.");
  module.def("_callers_follow", &follow_running, py::arg("code"), py::arg("line"),
             "Note the lines of a call that runs, outermost first; line 0: in another thread.");
  module.def("_callers_stop", &stop_callers,
             "Note no more. Return the lines, as int64 and four uint32 each: since when, line, "
             "code, thread, and nothing; the codes; and since when there was no room, 0: never.");
}

}  // namespace gpuprof::bindings
