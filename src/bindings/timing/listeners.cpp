#include "bindings/timing/listeners.hpp"

#include <Python.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/python/callbacks.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"
#include "bindings/python/keep_alive.hpp"
#include "bindings/python/objects.hpp"
#include "bindings/ranges/scope_stack.hpp"
#include "bindings/timing/sample.hpp"
#include "timing/device.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using timing::SampleQueue;
using timing::SampleRef;

namespace {

// Listeners that enter scopes and read them do not call each other.
thread_local bool inside_listeners = false;

// The first few of a cell, and how many there were.
struct Unheld {
  std::array<SampleRef, 10> first;
  std::size_t count = 0;
};

Unheld& unheld = driver::immortal<Unheld>();

// A new list; null with MemoryError set.
PyObject* list_of(std::vector<SampleRef> samples) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(samples.size()));
  if (list == nullptr) return nullptr;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    PyObject* sample = wrap_sample(std::move(samples[i]));
    if (sample == nullptr) {
      Py_DECREF(list);
      return nullptr;
    }
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), sample);
  }
  return list;
}

// In one call, so that no interrupt can come between begin() and end().
bool hand_on(SampleQueue& queue, py::handle function) {
  if (inside_listeners || is_paused() || !queue.begin()) return false;
  PyObject* list = list_of(queue.take());
  PyObject* done = list;
  inside_listeners = true;  // also in destructors of what the function has returned or put there
  if (list != nullptr && PyList_GET_SIZE(list) != 0) {
    done = PyObject_CallOneArg(function.ptr(), list);
    Py_XDECREF(done);
  }
  Py_XDECREF(list);
  inside_listeners = false;
  queue.end();
  if (done == nullptr) throw py::error_already_set();
  return true;
}

// Waits until what is pending is measured, at most `seconds`.
void wait_for_pending(double seconds) {
  const auto span = static_cast<timing::HostNanoseconds>(seconds * 1e9);
  const timing::HostNanoseconds until = timing::monotonic_now() + span;
  const std::vector<SampleRef> tails = timing::device::pending_tails();
  without_gil([&] {
    for (const SampleRef& tail : tails) timing::device::wait(*tail.get(), until);
    timing::device::drain();
  });
}

py::typing::Tuple<py::typing::List<py::object>, std::size_t> take_unheld() {
  if (notebook_cell != 0) notebook_cell = std::max(notebook_cell + 1, 1U);
  std::vector<SampleRef> first;
  const std::size_t count = std::exchange(unheld.count, 0);
  for (SampleRef& each : unheld.first) {
    if (each) first.push_back(std::exchange(each, {}));
  }
  return py::make_tuple(owned(list_of(std::move(first))), count);
}

void call_if_due(timing::HostNanoseconds now) {
  using namespace timing::listeners;
  if (inside_listeners || is_paused()) return;
  if (should_drain(now)) drain();
  const std::uint32_t bits = attention.load(std::memory_order_relaxed);
  if ((bits & kDue) == 0) return;
  if (relaxed_collections() > 0) return;  // a capture is open, which the user's code may break
  // Inside another scope it would be timed there.
  if ((bits & kUrgent) == 0 && !current_scope_stack().empty()) return;
  call_listeners();
}

}  // namespace

void call_listeners() {
  if (inside_listeners || is_paused()) return;
  timing::listeners::take_notice(timing::host_now());
  notify(Callback::kCallListeners);
}

void call_listeners_after_exit(const timing::Sample& sample) {
  const timing::SampleStatus status = sample.load_status();
  const bool in_capture =
      status == timing::SampleStatus::kSkipped || status == timing::SampleStatus::kCaptured;
  if (!in_capture) call_if_due(sample.host_end);
}

void call_listeners_after_launch() { call_if_due(timing::host_now()); }

void enter_span(PyObject* sample) {
  PyObject* answer = PyObject_CallOneArg(callback(Callback::kEnterSpan), sample);
  if (has_answered(answer, Py_True)) ++open_spans;
}

void leave_span(const SampleRef& sample) {
  PyObject* object = checked(wrap_sample(sample));
  PyObject* answer = PyObject_CallOneArg(callback(Callback::kLeaveSpan), object);
  const bool had_one = has_answered(answer, Py_True);
  Py_DECREF(object);
  if (had_one) --open_spans;
}

// The sample is read later, so what is pending is no reason to leave it out: its queue holds it.
void keep_unheld(SampleRef last) noexcept {
  const timing::SampleStatus status = last->load_status();
  const bool is_pending = status == timing::SampleStatus::kPending;
  const bool is_measured = is_pending || status == timing::SampleStatus::kDone;
  const std::uint32_t own = is_pending ? 2 : 1;
  if (!is_measured || last->body_raised || last->references.load() > own) return;
  if (unheld.count < unheld.first.size()) unheld.first[unheld.count] = std::move(last);
  ++unheld.count;
}

void bind_timing_listeners(py::module_& module) {
  py::class_<SampleQueue>(module, "_SampleQueue")
      .def(py::init<std::string, std::vector<std::string>, std::size_t>(), py::arg("name"),
           py::arg("paths"), py::arg("capacity") = timing::listeners::kCapacity)
      .def(
          "hand_on", &hand_on, py::arg("function"),
          "Call `function` with all that waits, a list, unless it is empty; False where nothing is "
          "handed on: inside of a listener, or beside another such call.")
      .def("close", &SampleQueue::close)
      .def(
          "wants",
          [](SampleQueue& queue, py::handle sample) {
            return queue.is_wanted(*sample_in(sample.ptr())->path);
          },
          py::arg("sample"), "Whether a sample of this path would be queued.")
      .def_property_readonly("dropped", &SampleQueue::dropped)
      .def("__len__", &SampleQueue::size);
  module.def("_drain", &drain);
  module.def(
      "_warn",
      [](py::handle text) {
        driver::warn(utf8(text.ptr()));
        emit_pending_warnings();
      },
      py::arg("text"), "Warn, without an exception also where warnings are errors.");
  module.def("_set_spans", [](bool on) { set_listener(kSpans, on); }, py::arg("on"));
  module.def("_keep_unheld", [] { notebook_cell = 1; });
  module.def("_take_unheld", &take_unheld,
             "The first of the cell that ends, and how many there were.");
  module.def("_wait_for_pending", &wait_for_pending, py::arg("seconds"));
}

}  // namespace gpuprof::bindings
