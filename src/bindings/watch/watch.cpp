#include "bindings/watch/watch.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <tuple>

#include "bindings/python/errors.hpp"
#include "bindings/timing/sample.hpp"
#include "bindings/timing/scope.hpp"
#include "graphs/capture.hpp"

namespace gpuprof::bindings::watch {

namespace py = pybind11;
using timing::SampleRef;

namespace {

constexpr unsigned kMemoryReads = 8;  // of each module: torch takes tens of microseconds for one
constexpr const char* kStoppedEarly = "_StopRecomputationError";  // torch's, of a checkpoint

Watch& watch_of(py::handle object) { return unchecked<Watch>(object.ptr()); }

py::object call_function(const py::object& function) {
  return owned(PyObject_CallNoArgs(function.ptr()));
}

void add_hook(PyObject* node, PyObject* name, PyObject* hook) {
  PyObject* const arguments[] = {node, hook};
  owned(PyObject_VectorcallMethod(name, arguments, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

// Whether `frame` is one of those that have called `inner`.
bool is_running(PyObject* frame, PyObject* inner) {
  auto* each = reinterpret_cast<PyFrameObject*>(Py_NewRef(inner));
  while (each != nullptr && reinterpret_cast<PyObject*>(each) != frame) {
    PyFrameObject* back = PyFrame_GetBack(each);
    Py_DECREF(each);
    each = back;
  }
  Py_XDECREF(each);
  return each != nullptr;
}

// Takes the innermost call out before it is dropped, which may run any code.
void abandon_last(Objects& calls) {
  const py::object call = std::move(calls.back());
  calls.pop_back();
  call_of(call).abandon(true);
}

// The row of a module with several paths: the one below the module that calls it.
Entry& entry_below(PyObject* entries, const py::object& outer) {
  const Entry* caller = outer ? call_of(outer).entry : nullptr;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(entries); ++i) {
    auto& entry = unchecked<Entry>(PyList_GET_ITEM(entries, i));
    if (entry.caller == caller) return entry;
  }
  return unchecked<Entry>(PyList_GET_ITEM(entries, 0));
}

}  // namespace

void Call::abandon(bool with_its_nodes) {
  const auto gone = std::make_tuple(std::move(inner), std::move(frame));
  for (const py::object& each : std::get<0>(gone)) call_of(each).forget_nodes();
  if (with_its_nodes) forget_nodes();
}

void Call::forget_nodes() {
  const auto gone =
      std::make_tuple(std::move(tensors), std::move(results), std::move(last), std::move(beyond));
}

bool Call::is_inside(const Call& other) const {
  const Call* around = this;
  do {
    around = around->outer ? &call_of(around->outer) : nullptr;
  } while (around != nullptr && around != &other);
  return around != nullptr;
}

bool Watch::is_compiling() const {
  // Torch calls hooks of what it compiles outside of that.
  const py::object callback = call_function(functions_.frame_callback);
  if (!callback.is_none() && callback.ptr() != Py_False) return true;
  return call_function(functions_.is_compiling).ptr() == Py_True;
}

Task::~Task() { watch_of(watch).forget(*this); }

PyObject* handled_exception() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_GetExcInfo(&type, &value, &traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value != nullptr ? value : Py_NewRef(Py_None);
}

// Scopes

py::object Watch::take_scope(py::handle self, Entry& entry, const char* direction) {
  const Py_ssize_t count = PyList_GET_SIZE(scopes_.ptr());
  if (count == 0 || !graphs::open_captures().empty()) {
    PyObject* its = py::cast(&entry).release().ptr();  // an object of Python that there is
    PyObject* scope = PyObject_CallMethod(self.ptr(), "scope", "Os", its, direction);
    Py_DECREF(its);
    return owned(scope);
  }
  auto scope = py::reinterpret_borrow<py::object>(PyList_GET_ITEM(scopes_.ptr(), count - 1));
  PyList_SetSlice(scopes_.ptr(), count - 1, count, nullptr);
  return scope;
}

SampleRef Watch::leave_scope(PyObject* scope, PyObject* sample, bool raised) {
  auto& its = unchecked<Scope>(scope);
  its.exit(raised);
  if (!its.options().name)
    scopes_.append(py::handle(scope));  // a named one holds what a capture recorded
  return sample_in(sample);
}

// Forward

void Watch::enter(py::handle self, PyObject* entries, PyObject* frame) {
  const auto is_interrupted = [&](const Objects& calls) {  // of which torch tells no hook
    return !calls.empty() && !is_running(call_of(calls.back()).frame.ptr(), frame);
  };
  // To drop a call may run any code, so the thread's calls are asked for anew.
  while (is_interrupted(this_thread().calls)) abandon_last(this_thread().calls);
  if (closed_) return;
  Thread& here = this_thread();
  PyObject* made = Callable<Call>::make();
  Call& call = Callable<Call>::of(made);
  call.watch = py::reinterpret_borrow<py::object>(self);
  call.entries = py::reinterpret_borrow<py::object>(entries);
  if (!here.calls.empty()) call.outer = here.calls.back();
  call.frame = py::reinterpret_borrow<py::object>(frame);
  call.entry = &entry_below(entries, call.outer);
  here.calls.push_back(py::reinterpret_steal<py::object>(made));
  keeping(made, [&] {
    call.task = call_function(functions_.task_number).cast<long>();
    if (call.task != -1) {
      const Call* outer = call.outer ? &call_of(call.outer) : nullptr;
      call.recomputed = outer == nullptr || outer->recomputed || outer->task != call.task;
    }
    PyObject* handled = handled_exception();
    call.handled = handled;
    Py_DECREF(handled);
    call.reads_memory = call.entry->memory_reads < kMemoryReads && !call.recomputed;
    if (call.reads_memory) call.memory = call_function(functions_.allocated);
    if (!functions_.node_number.is_none())
      call.first = call_function(functions_.node_number).cast<std::int64_t>();
    const char* direction = call.recomputed ? "recomputed" : "forward";
    call.scope = take_scope(self, *call.entry, direction);
    call.sample = owned(unchecked<Scope>(call.scope.ptr()).enter());
  });
}

void Watch::leave(py::handle entries, py::handle module, py::handle result, py::handle error) {
  const auto is_its = [&](const py::object& each) { return call_of(each).entries.is(entries); };
  const auto has_its = [&](const Objects& calls) {
    return std::any_of(calls.begin(), calls.end(), is_its);
  };
  while (has_its(this_thread().calls) && !is_its(this_thread().calls.back()))
    abandon_last(this_thread().calls);
  Objects& calls = this_thread().calls;
  if (!has_its(calls)) return;  // it ran when the watch began
  PyObject* call = calls.back().release().ptr();
  calls.pop_back();
  keeping(call, [&] {
    Py_DECREF(call);
    or_undo([&] { finish_forward(call, module.ptr(), result.ptr(), error.ptr()); },
            [&] { call_of(call).abandon(true); });
    call_of(call).abandon(!call_of(call).outer || closed_);  // else that has them
  });
}

void Watch::finish_forward(PyObject* object, PyObject* module, PyObject* result, PyObject* error) {
  Call& call = call_of(object);
  const bool raised =
      error != Py_None && error != call.handled &&
      (!call.recomputed || std::strcmp(Py_TYPE(error)->tp_name, kStoppedEarly) != 0);
  if (!call.sample) return;
  const Objects& calls = this_thread().calls;
  const bool nested = std::any_of(calls.begin(), calls.end(), [&](const py::object& each) {
    return call_of(each).entry == call.entry;
  });
  const Call* around = call.outer ? &call_of(call.outer) : nullptr;
  if (around != nullptr && around->recomputed != call.recomputed) around = nullptr;
  if (around == nullptr && call.recomputed) {
    for (Task::Opened* each : open_backwards())
      each->recomputed.push_back(sample_in(call.sample.ptr()));
  }
  sums.take({leave_scope(call.scope.ptr(), call.sample.ptr(), raised),
             call.entry,
             &call.pass(),
             around != nullptr ? around->entry : nullptr,
             around != nullptr ? &around->pass() : nullptr,
             nested,
             {}});
  call.scope = call.sample = py::object();
  if (!raised) {
    if (call.reads_memory) {
      ++call.entry->memory_reads;
      const py::object after = call_function(functions_.allocated);
      if (!after.is_none() && !call.memory.is_none())
        call.entry->activation_bytes = after - call.memory;
    }
    // The copies that DataParallel makes have nodes of several threads.
    if (call.first >= 0 && module == call.entry->module) follow(object, result);
  }
}

void Watch::follow(PyObject* object, PyObject* result) {
  static PyObject* const register_prehook = interned("register_prehook");
  static PyObject* const register_hook = interned("register_hook");
  Call& call = call_of(object);
  if (call_function(functions_.is_grad_enabled).ptr() != Py_True) return;
  const auto end = call_function(functions_.node_number).cast<std::uint64_t>();
  if (end == static_cast<std::uint64_t>(call.first)) return;
  auto* type = reinterpret_cast<PyTypeObject*>(functions_.tensor_type.ptr());
  Objects& results = call.results;
  if (PyObject_TypeCheck(result, type) != 0) {
    add_nodes_of(result, results);
  } else {
    call.tensors = owned(PyObject_CallOneArg(functions_.tensors_in.ptr(), result));
    for (const py::handle each : call.tensors) add_nodes_of(each.ptr(), results);
    call.tensors = py::object();
  }
  const auto is_other = [&](const py::object& node) {
    const std::uint64_t number = number_of(node.ptr());
    return number < static_cast<std::uint64_t>(call.first) || number >= end;
  };
  results.erase(std::remove_if(results.begin(), results.end(), is_other), results.end());
  if (results.empty()) return;
  const Inside inside = calls_inside(call);
  for (const py::object& node : results) {
    const auto found = inside.find(node.ptr());
    if (found == inside.end()) {
      add_hook(node.ptr(), register_prehook, object);
    } else {
      found->second->opens_outer = true;
    }
  }
  find_last_node(call, end, inside);
  add_hook(call.last.ptr(), register_hook, object);  // after those of the calls inside
  if (call.outer && !closed_)
    call_of(call.outer).inner.push_back(py::reinterpret_borrow<py::object>(object));
}

// Backward

Watch::Thread& Watch::this_thread() {
  const unsigned long number = PyThread_get_thread_ident();
  const auto [place, is_new] = threads_.try_emplace(number);
  Thread& here = place->second;
  if (is_new) {
    here.watch = this;
    here.number = number;
    // What the thread holds goes with it.
    const auto end_it = [](void* object) { static_cast<Thread*>(object)->end(); };
    py::setattr(functions_.thread_local_data, "ending", py::capsule(&here, end_it));
  }
  return here;
}

void Watch::Thread::end() {
  Objects gone = std::move(calls);
  watch->threads_.erase(watch->threads_.find(number));  // and with it this
  while (!gone.empty()) abandon_last(gone);
}

void Watch::forget(const Task& task) {
  for (auto& [number, each] : threads_) {
    auto& tasks = each.tasks;
    tasks.erase(std::remove(tasks.begin(), tasks.end(), &task), tasks.end());
  }
}

void Watch::end() {
  closed_ = true;
  Objects gone;
  for (auto& [number, each] : threads_) {
    std::move(each.calls.begin(), each.calls.end(), std::back_inserter(gone));
    each.calls.clear();
  }
  while (!gone.empty()) abandon_last(gone);
}

// What is open on this thread in the backward pass that runs; null if nothing is, and not made.
Task* Watch::task(py::handle self, bool make) {
  const long number = call_function(functions_.task_number).cast<long>();
  const auto& tasks = this_thread().tasks;
  if (!tasks.empty() && tasks.back()->number == number) return tasks.back();
  if (!make) return nullptr;
  PyObject* made = Callable<Task>::make();
  Task& task = Callable<Task>::of(made);
  task.watch = py::reinterpret_borrow<py::object>(self);
  task.number = number;
  task.thread = PyThread_get_thread_ident();
  this_thread().tasks.push_back(&task);
  keeping(made, [&] {
    Py_DECREF(made);
    owned(PyObject_CallOneArg(functions_.queue_callback.ptr(), made));
  });
  return &task;
}

std::vector<Task::Opened*> Watch::open_backwards() {
  std::vector<Task::Opened*> found;
  for (Task* task : this_thread().tasks) {
    for (Task::Opened& each : task->opened) found.push_back(&each);
  }
  return found;
}

void Watch::begin_backward(PyObject* object) {
  Call& call = call_of(object);
  if (call.opens_outer) begin_backward(call.outer.ptr());
  Task& task = *this->task(call.watch, true);
  for (const Task::Opened& each : task.opened) {
    if (each.call.ptr() == object) return;
  }
  while (!task.opened.empty() && !call.is_inside(call_of(task.opened.back().call)))
    close(task);  // its last node was not needed, so did not run
  py::object scope = take_scope(call.watch, *call.entry, "backward");
  auto& its = unchecked<Scope>(scope.ptr());
  task.opened.push_back({py::reinterpret_borrow<py::object>(object), std::move(scope), {}, {}});
  task.opened.back().sample = owned(its.enter());
}

void Watch::end_backward(PyObject* object) {
  Task* task = this->task(call_of(object).watch, false);
  if (task == nullptr) return;
  const auto is_its = [&](const Task::Opened& each) { return each.call.ptr() == object; };
  if (std::none_of(task->opened.begin(), task->opened.end(), is_its)) return;
  for (bool found = false; !found; close(*task)) found = is_its(task->opened.back());
}

// Closes the innermost backward pass that is open.
void Watch::close(Task& task) {
  // On the heap, as a frame may own no object of Python while a scope is left.
  auto* opened = new Task::Opened(std::move(task.opened.back()));
  task.opened.pop_back();
  const auto take_sample = [&] {
    Entry* entry = call_of(opened->call).entry;
    Entry* around = nullptr;
    bool nested = false;
    for (const Task::Opened* each : open_backwards()) {
      around = call_of(each->call).entry;
      nested = nested || around == entry;
    }
    SampleRef sample = leave_scope(opened->scope.ptr(), opened->sample.ptr(), false);
    sums.take({std::move(sample), entry, &entry->backward, around,
               around != nullptr ? &around->backward : nullptr, nested,
               std::move(opened->recomputed)});
  };
  with_cleanup(take_sample, [&] { delete opened; });
}

void Watch::finish(Task& task) {
  if (task.thread == PyThread_get_thread_ident()) {
    while (!task.opened.empty()) close(task);
  }
  task.opened.clear();
}

}  // namespace gpuprof::bindings::watch
