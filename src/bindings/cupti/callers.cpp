// Which line of Python each thread was in, and since when: so a launch, whose thread and time CUPTI
// records, has its caller.
//
// Functions of sys.monitoring, which Python calls with the interpreter lock where a line begins,
// and where a function starts and returns. They note the line on the thread that runs it. No
// launch is as short as kShortest, so of lines that follow each other faster only the last is kept:
// a loop in Python fills no memory. Past a limit nothing is noted, and the lines have no events.
//
// What it gets wrong: an exception that leaves a function has no event, so what is launched after
// it in the same line of its caller counts for the line that raised.
#include <Python.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
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
constexpr std::size_t kMostOpen = 4096;  // of endless recursion the innermost functions stay

struct Line {
  HostNanoseconds since;
  std::uint32_t code;  // 0: none of those that are followed
  std::uint32_t line;
};

struct OpenFunction {
  PyObject* code;
  std::uint32_t number;
  std::uint32_t line;
};

struct ThreadLines {
  explicit ThreadLines(std::uint32_t thread_id) : thread(thread_id) {}

  std::uint32_t thread;
  std::vector<OpenFunction> open;
  std::deque<Line> lines;
};

// Everything under the interpreter lock.
struct Lines {
  std::uint64_t number = 0;  // of the recording; 0: there is none
  std::size_t room = 0;
  HostNanoseconds full_since = 0;
  PyObject* choose = nullptr;    // whether a code is followed; gives it its events
  PyObject* disable = nullptr;   // what switches an event off for good
  std::vector<PyObject*> codes;  // owned, so that no other gets the address of one
  std::unordered_map<PyObject*, std::uint32_t> numbers;
  std::vector<std::unique_ptr<ThreadLines>> threads;
};
Lines& lines_of_all() { return driver::immortal<Lines>(); }

struct MyLines {
  std::uint64_t number = 0;
  ThreadLines* lines = nullptr;
};
thread_local MyLines my_lines;

ThreadLines& of_this_thread(Lines& all) {
  if (my_lines.number != all.number) {
    all.threads.push_back(std::make_unique<ThreadLines>(trace::thread_id()));
    my_lines = {all.number, all.threads.back().get()};
  }
  return *my_lines.lines;
}

void note_line(Lines& all, ThreadLines& thread, std::uint32_t code, std::uint32_t line) {
  const Line now{timing::monotonic_now(), code, line};
  if (!thread.lines.empty()) {
    Line& last = thread.lines.back();
    if (last.code == code && last.line == line) return;
    if (now.since - last.since < kShortest) {
      last = now;
      return;
    }
  }
  if (all.room == 0) {
    if (all.full_since == 0) all.full_since = now.since;
    return;
  }
  --all.room;
  thread.lines.push_back(now);
}

// Leaves the functions above the innermost one of this code, if there is one: they ended by an
// exception.
bool leave_above(ThreadLines& thread, PyObject* code) {
  auto& open = thread.open;
  if (!open.empty() && open.back().code == code) return true;
  const auto found =
      std::find_if(open.rbegin(), open.rend(), [=](auto& each) { return each.code == code; });
  if (found == open.rend()) return false;
  open.erase(found.base(), open.end());
  return true;
}

void push_open(ThreadLines& thread, PyObject* code, std::uint32_t number) {
  if (thread.open.size() >= kMostOpen) thread.open.erase(thread.open.begin());
  thread.open.push_back({code, number, 0});
}

// The number of a code, 0 for one that is not followed. -1 with an exception set.
std::int64_t code_number(Lines& all, PyObject* code) {
  const auto found = all.numbers.find(code);
  if (found != all.numbers.end()) return found->second;
  const std::uint64_t recording = all.number;
  PyObject* chosen = PyObject_CallOneArg(all.choose, code);
  if (chosen == nullptr) return -1;
  const bool is_followed = chosen == Py_True && all.number == recording;  // which may have ended
  Py_DECREF(chosen);
  if (!is_followed) return 0;
  all.codes.push_back(Py_NewRef(code));
  const auto number = static_cast<std::uint32_t>(all.codes.size());
  all.numbers.emplace(code, number);
  return number;
}

template <typename Work>
PyObject* told(PyObject* const* args, Py_ssize_t count, Work&& work) {
  Lines& all = lines_of_all();
  if (all.number == 0 || count < 2) Py_RETURN_NONE;
  if (all.full_since != 0) return Py_NewRef(all.disable);
  try {
    return work(all, args[0]);
  } catch (const std::exception&) {
    return PyErr_NoMemory();
  }
}

PyObject* on_line_start(PyObject* /*self*/, PyObject* const* args, Py_ssize_t count) {
  return told(args, count, [](Lines& all, PyObject* code) -> PyObject* {
    const std::int64_t number = code_number(all, code);
    if (number < 0) return nullptr;
    if (all.number == 0) Py_RETURN_NONE;
    if (number == 0) return Py_NewRef(all.disable);
    push_open(of_this_thread(all), code, static_cast<std::uint32_t>(number));
    Py_RETURN_NONE;
  });
}

PyObject* on_line(PyObject* /*self*/, PyObject* const* args, Py_ssize_t count) {
  return told(args, count, [=](Lines& all, PyObject* code) -> PyObject* {
    ThreadLines& thread = of_this_thread(all);
    if (!leave_above(thread, code)) {  // a generator that was thrown into
      const auto found = all.numbers.find(code);
      if (found == all.numbers.end()) Py_RETURN_NONE;
      push_open(thread, code, found->second);
    }
    OpenFunction& open = thread.open.back();
    open.line = static_cast<std::uint32_t>(PyLong_AsUnsignedLongMask(args[1]));
    note_line(all, thread, open.number, open.line);
    Py_RETURN_NONE;
  });
}

PyObject* on_return(PyObject* /*self*/, PyObject* const* args, Py_ssize_t count) {
  return told(args, count, [](Lines& all, PyObject* code) -> PyObject* {
    ThreadLines& thread = of_this_thread(all);
    if (leave_above(thread, code)) thread.open.pop_back();
    const OpenFunction around =
        thread.open.empty() ? OpenFunction{nullptr, 0, 0} : thread.open.back();
    note_line(all, thread, around.number, around.line);
    Py_RETURN_NONE;
  });
}

PyMethodDef line_functions[] = {
    {"_callers_on_start", as_method(on_line_start), METH_FASTCALL,
     "_callers_on_start(code: typing.Any, offset: int) -> typing.Any"},
    {"_callers_on_line", as_method(on_line), METH_FASTCALL,
     "_callers_on_line(code: typing.Any, line: int) -> typing.Any"},
    {"_callers_on_return", as_method(on_return), METH_FASTCALL,
     "_callers_on_return(code: typing.Any, offset: int, value: typing.Any = None) -> typing.Any"},
};

void start_lines(py::object choose, py::object disable, std::size_t limit) {
  static std::uint64_t newest = 0;
  Lines& all = lines_of_all();
  all.choose = choose.release().ptr();
  all.disable = disable.release().ptr();
  all.room = limit;
  all.full_since = 0;
  all.number = ++newest;
}

template <typename Value, typename Field>
py::bytes line_column(const std::deque<Line>& lines, Field field) {
  std::vector<Value> values;
  values.reserve(lines.size());
  for (const Line& line : lines) values.push_back(static_cast<Value>(line.*field));
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

// Of each thread its id, and since when (ns, int64) it was in which code (uint32, from 1 on; 0 for
// none) and line (uint32); the codes; and since when nothing was noted, 0 for never.
AnyTuple stop_lines() {
  Lines& all = lines_of_all();
  all.number = 0;
  py::list threads;
  for (const auto& each : all.threads) {
    threads.append(py::make_tuple(each->thread,
                                  line_column<std::int64_t>(each->lines, &Line::since),
                                  line_column<std::uint32_t>(each->lines, &Line::code),
                                  line_column<std::uint32_t>(each->lines, &Line::line)));
  }
  py::list codes;
  for (PyObject* code : all.codes) codes.append(py::reinterpret_steal<py::object>(code));
  const HostNanoseconds full_since = all.full_since;
  const auto choose = py::reinterpret_steal<py::object>(std::exchange(all.choose, nullptr));
  const auto disable = py::reinterpret_steal<py::object>(std::exchange(all.disable, nullptr));
  all.codes.clear();
  all.numbers.clear();
  all.threads.clear();
  return AnyTuple(py::make_tuple(threads, codes, full_since));
}

}  // namespace

void bind_callers(py::module_& module) {
  for (PyMethodDef& function : line_functions) add_function(module, function);
  module.def("_callers_start", &start_lines, py::arg("choose"), py::arg("disable"),
             py::arg("limit"), "Note the lines of functions from now on, so many at most.");
  module.def("_callers_stop", &stop_lines, "Note no more, and return what was noted.");
}

}  // namespace gpuprof::bindings
