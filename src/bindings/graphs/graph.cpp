// CapturedGraph for Python: its launch is a plain C method; gpuprof._graphs.graph has the rest.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "bindings/bind.hpp"
#include "bindings/graphs/launch.hpp"
#include "bindings/graphs/nodes.hpp"
#include "bindings/graphs/scalar.hpp"
#include "bindings/interop/streams.hpp"
#include "bindings/python/call_arguments.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"
#include "bindings/python/keep_alive.hpp"
#include "bindings/python/objects.hpp"
#include "bindings/python/queueing.hpp"
#include "bindings/python/switches.hpp"
#include "bindings/ranges/range_attributes.hpp"
#include "bindings/ranges/scope_events.hpp"
#include "bindings/ranges/scope_stack.hpp"
#include "bindings/timing/listeners.hpp"
#include "bindings/timing/sample.hpp"
#include "driver/cuda_thread_state.hpp"
#include "graphs/captured_graph.hpp"
#include "timing/scope.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using graphs::CapturedGraph;
using graphs::IoAddresses;
using graphs::LaunchRequest;
using graphs::LaunchResult;
using timing::Sample;
using timing::SampleRef;

namespace {

using CopyList = std::vector<std::tuple<std::uintptr_t, std::uintptr_t, std::size_t>>;
using EndedCapture = py::typing::Optional<graphs::CapturedParts>;
using Times = py::typing::List<
    py::typing::Tuple<py::typing::Tuple<py::str, py::ellipsis>, py::typing::Optional<py::float_>>>;

// The driver's result, which is 0 for a graph that fitted, and the two nodes.
using UpdateAnswer = std::tuple<int, std::int64_t, std::int64_t>;

class PyGraph {
 public:
  // `handle` is the graph, unless `ended` brings one. `stream` is kept alive with the graph.
  PyGraph(const EndedCapture& ended, std::uintptr_t handle, std::uintptr_t stream, int ordinal,
          int timers, const std::string& name)
      : path_(name), stream_(stream), ordinal_(ordinal) {
    graphs::CapturedParts parts;
    if (!ended.is_none()) parts = std::exchange(ended.cast<graphs::CapturedParts&>(), {});
    graph_ =
        std::make_unique<CapturedGraph>(std::move(parts), reinterpret_cast<void*>(handle), stream,
                                        ordinal, static_cast<graphs::GraphTimers>(timers));
  }

  // With the interpreter lock. Waits for no launch of another thread.
  ~PyGraph() {
    bool closed = graph_->closed();
    if (!closed) without_gil([&] { closed = graph_->close(false); });
    if (closed) {
      drop_framework();
    } else {
      graphs::close_later(std::move(graph_), payload_of(std::move(framework_)));
    }
    drain_kept_soon();
  }

  // What a framework has of the graph. Its destruction may call the driver, inside a capture too.
  void set_framework(py::object framework) {
    drop_framework();
    framework_ = std::move(framework);
  }
  [[nodiscard]] const py::object& framework() const noexcept { return framework_; }

  void retain(const AnyTuple& objects) {
    graphs::Payload kept = keep_alive(objects);
    without_gil([&] { graph_->retain(std::move(kept)); });
  }

  // Those of `objects` that are scalars.
  void read_scalars(const AnyTuple& objects) {
    std::vector<std::shared_ptr<const graphs::DeviceScalar>> scalars;
    for (const py::handle object : objects) {
      if (auto scalar = device_scalar(object)) scalars.push_back(std::move(scalar));
    }
    if (!scalars.empty()) without_gil([&] { graph_->read_scalars(scalars); });
  }

  // `objects` is what the graph needs from now on.
  UpdateAnswer update(PyGraph& other, const AnyTuple& objects) {
    graphs::Payload kept = keep_alive(objects);
    graphs::UpdateRefusal refusal;
    without_gil([&] { graph_->update(*other.graph_, std::move(kept), refusal); });
    drain_kept();
    return {refusal.result, refusal.node, refusal.node_of_other};
  }

  // Each copy is (address inside, address outside, bytes).
  void add_copies(const CopyList& in, const CopyList& out) {
    const auto copies = [](const CopyList& list) {
      std::vector<graphs::IoCopy> result;
      for (const auto& [inside, outside, bytes] : list) result.push_back({inside, outside, bytes});
      return result;
    };
    const auto before = copies(in);
    const auto after = copies(out);
    without_gil([&] { graph_->add_copies(before, after); });
  }

  void instantiate() {
    inside_own_range(OwnRange::kInstantiate,
                     [this] { without_gil([this] { graph_->instantiate(); }); });
  }

  void close() {
    without_gil([this] { graph_->close(); });
    drop_framework();
    drain_kept();
  }

  // `at` is null for a launch that leaves the copies at the edges out.
  LaunchResult launch(PyObject* self, const CurrentStream& on, IoAddresses* at) {
    const bool traced = listens(kTrace) && trace_records();
    if (notice) {
      notice = false;
      py::handle(self).attr("_launched_after_clear")();
    }
    // A graph that collects, launched while timing is off, does not.
    const bool collects = graph_->collects() && !switches.disabled_for_good && !is_paused() &&
                          timing::scope::enabled.load(std::memory_order_relaxed);
    if (direct && !traced && !collects && !listens(kNvtx)) return launch_on(on, nullptr, at);
    return launch_seen(self, on, at, traced, collects);
  }

  [[nodiscard]] CurrentStream launch_stream(PyObject* stream) const {
    if (stream != Py_None) return {stream_handle(stream), 0, false};
    const CurrentStream now = current_stream();
    return now.of_framework ? now : CurrentStream{stream_, ordinal_, false};
  }

  Times times(bool wait) {
    std::vector<graphs::SpanTime> times;
    // Not even once with the lock: another thread may be in a launch that takes long.
    keep_polling_without_gil([&](timing::HostNanoseconds until) {
      return timing::poll_until(until, [&] {
        times = graph_->times();
        return !wait || std::all_of(times.begin(), times.end(),
                                    [](const auto& t) { return t.ms.has_value(); });
      });
    });
    Times result;
    for (const graphs::SpanTime& time : times) {
      const py::tuple names =
          time.named ? py::tuple(path_names(*time.path)) : py::make_tuple("(unnamed)");
      result.append(py::make_tuple(names, time.ms));
    }
    return result;
  }

  CapturedGraph& graph() { return *graph_; }

  bool direct = true;   // a launch is the driver's alone
  bool notice = false;  // the next launch has something to say first

 private:
  static graphs::Payload payload_of(py::object object) noexcept {
    try {
      return keep_alive(py::make_tuple(object));
    } catch (const std::exception&) {  // out of memory: kept for good
      object.release();
      return {};
    }
  }

  void drop_framework() {
    if (framework_.is_none()) return;
    const driver::RelaxedCapture relaxed;
    framework_ = py::none();
  }

  LaunchResult launch_on(const CurrentStream& on, Sample* replay, IoAddresses* at) {
    const LaunchRequest request{on.handle, on.ordinal, replay, at};
    LaunchResult done = LaunchResult::kLaunched;
    const auto launch = [&] {
      done = graph_->launch(request);
      graphs::release_finished();  // graphs that were let go meanwhile may have waited for this
    };
    if (graphs::DeviceScalar::any_on_per_thread_stream.load(std::memory_order_relaxed)) {
      without_gil(launch);  // what it waits for may be on this thread's stream
    } else {
      queue_without_gil({on.handle, &graph_->clock()}, launch);
    }
    drain_kept_soon();
    return done;
  }

  LaunchResult launch_by_framework(PyObject* self, const CurrentStream& on, Sample* replay,
                                   IoAddresses* at) {
    const LaunchRequest request{on.handle, on.ordinal, replay, at};
    const LaunchResult begun = without_gil([&] { return graph_->begin_external_launch(request); });
    if (begun != LaunchResult::kLaunched) return begun;
    static PyObject* name = interned("_replay_by_framework");
    PyObject* handle = PyLong_FromUnsignedLongLong(on.handle);
    PyObject* done = PyObject_CallMethodObjArgs(self, name, handle, nullptr);
    Py_XDECREF(handle);
    Py_XDECREF(done);
    const bool launched = done != nullptr;
    const TakenException raised;
    without_gil([&] { graph_->end_external_launch(request, launched); });
    raised.put_back();
    if (!launched) throw py::error_already_set();
    return begun;
  }

  // A launch that somebody watches: a trace, NVTX, or the statistics.
  LaunchResult launch_seen(PyObject* self, const CurrentStream& on, IoAddresses* at, bool traced,
                           bool collects) {
    SampleRef replay;
    if (traced || collects) {
      replay = SampleRef(timing::make_sample());
      const ScopeStack& stack = current_scope_stack();
      replay->path = &path_.below(stack.path());
      replay->depth =
          static_cast<std::uint16_t>(std::min<std::size_t>(stack.size(), UINT16_MAX - 1));
      if (traced) name_this_thread();
      if (traced || is_heard()) replay->thread = trace::thread_id();
    }
    LaunchResult done = LaunchResult::kLaunched;
    inside_own_range(OwnRange::kReplay, [&] {
      done = direct ? launch_on(on, replay.get(), at)
                    : launch_by_framework(self, on, replay.get(), at);
    });
    if (traced && done == LaunchResult::kLaunched) trace_host_span(*replay.get(), replay->depth);
    emit_pending_warnings();
    return done;
  }

  timing::PathCache path_;
  std::uintptr_t stream_;
  int ordinal_;
  std::unique_ptr<CapturedGraph> graph_;
  py::object framework_ = py::none();
};

PyObject* launch_graph(PyObject* self, PyObject* const* arguments, Py_ssize_t count,
                       PyObject* keywords) {
  static constexpr const char* kNames[] = {"stream"};
  CallArguments<1> given;
  if (!given.read(kNames, 1, arguments, count, keywords)) {
    return PyErr_Format(PyExc_TypeError, "launch() takes at most one argument, stream");
  }
  PyObject* stream = given.at[0] != nullptr ? given.at[0] : Py_None;
  return guarded<PyObject*>(nullptr, [&] {
    auto& graph = unchecked<PyGraph>(self);
    graph.launch(self, graph.launch_stream(stream), nullptr);
    if (is_heard()) call_listeners_after_launch();
    return Py_NewRef(Py_None);
  });
}

PyMethodDef launch_method{
    "launch", as_method(&launch_graph), METH_FASTCALL | METH_KEYWORDS,
    "launch(self: gpuprof._core.GraphBase, stream: typing.Any = None) -> None\n\n"
    "Replay the graph once on `stream`, without waiting for it.\n\n"
    "Parameters\n----------\n"
    "stream : int or object, optional\n"
    "    None is the framework's current stream; without a framework the one it was captured "
    "on.\n\n"
    "Raises\n------\n"
    "InvalidStateError\n"
    "    The graph is closed, or the stream is being captured.\n"
    "CudaError\n"
    "    The driver refused the launch.\n"};

// Binds a method that takes the graph's lock, which another thread may hold over a driver call that
// takes long: the lock of the interpreter is let go first. `as_python` makes the answer.
template <typename Result, typename... Arguments>
auto locking(Result (CapturedGraph::*method)(Arguments...)) {
  return [method](PyGraph& self, std::decay_t<Arguments>... arguments) {
    return without_gil([&] { return (self.graph().*method)(arguments...); });
  };
}

template <typename Result, typename Convert>
auto locking(Result (CapturedGraph::*method)(), Convert as_python) {
  return [get = locking(method), as_python](PyGraph& self) { return as_python(get(self)); };
}

std::uintptr_t number_of(void* handle) noexcept { return reinterpret_cast<std::uintptr_t>(handle); }

// What changes it, or is its framework's.
void bind_making(py::class_<PyGraph>& graph) {
  graph
      .def(py::init(&std::make_unique<PyGraph, const EndedCapture&, std::uintptr_t, std::uintptr_t,
                                      int, int, const std::string&>),
           py::arg("ended"), py::arg("handle"), py::arg("stream"), py::arg("ordinal"),
           py::arg("timers"), py::arg("name"))
      .def("_retain", &PyGraph::retain, py::arg("objects"))
      .def("_read_scalars", &PyGraph::read_scalars, py::arg("objects"))
      .def("_read_scalars_of", locking(&CapturedGraph::read_scalars_of), py::arg("stream"))
      .def("_set_launch_order", locking(&CapturedGraph::set_launch_order), py::arg("order"))
      .def("_note_use", locking(&CapturedGraph::note_use), py::arg("stream"))
      .def("_add_copies", &PyGraph::add_copies, py::arg("before"), py::arg("after"))
      .def("_instantiate", &PyGraph::instantiate)
      .def(
          "_lend_exec",
          [](PyGraph& self, std::uintptr_t exec) {
            without_gil([&] { self.graph().borrow_exec(reinterpret_cast<void*>(exec)); });
          },
          py::arg("exec"))
      .def("_update", &PyGraph::update, py::arg("other"), py::arg("objects"))
      .def_property("_by_torch", &PyGraph::framework, &PyGraph::set_framework)
      .def_readwrite("_direct", &PyGraph::direct)
      .def_readwrite("_notice", &PyGraph::notice)
      .def(
          "upload",
          [](PyGraph& self, const py::object& stream) {
            const CurrentStream on = self.launch_stream(stream.ptr());
            without_gil([&] { self.graph().upload(on.handle); });
          },
          py::arg("stream") = py::none())
      .def("close", &PyGraph::close);
}

void bind_looking(py::class_<PyGraph>& graph) {
  graph.def("_times", &PyGraph::times, py::arg("wait"))
      .def("_memory", locking(&CapturedGraph::memory,
                              [](const graphs::GraphMemory& memory) {
                                return std::make_pair(memory.instantiate, memory.upload);
                              }))
      .def_property_readonly(
          "closed", [](PyGraph& self) { return self.graph().closed(); },
          "Whether `close` was called.")
      .def_property_readonly(
          "num_replays", [](PyGraph& self) { return self.graph().replays(); },
          "How often the graph was launched.")
      .def_property_readonly(
          "is_uploaded", [](PyGraph& self) { return self.graph().uploaded(); },
          "Whether the graph is on the device, by `upload` or by a launch.")
      .def_property_readonly("num_nodes", locking(&CapturedGraph::node_count))
      .def_property_readonly("raw_graph", locking(&CapturedGraph::graph, &number_of),
                             "The CUgraph, as an int. It belongs to this object.")
      .def_property_readonly("raw_exec", locking(&CapturedGraph::exec, &number_of),
                             "The CUgraphExec, as an int. It belongs to this object.")
      .def_property_readonly(
          "device", [](PyGraph& self) { return self.graph().device(); },
          "The index of the device that the graph is on.")
      .def("_walk", locking(&CapturedGraph::nodes, &python_nodes))
      .def("_labelled_ids", locking(&CapturedGraph::labelled_nodes, &python_ids))
      .def_property_readonly("_has_labels", locking(&CapturedGraph::has_labels))
      .def_property_readonly("_span_count", [](PyGraph& self) { return self.graph().span_count(); })
      .def_property_readonly("_collects", [](PyGraph& self) { return self.graph().collects(); });
}

}  // namespace

CurrentStream graph_stream(PyObject* graph) {
  return unchecked<PyGraph>(graph).launch_stream(Py_None);
}

LaunchResult launch_pointed(PyObject* graph, const CurrentStream& on, IoAddresses& at) {
  return unchecked<PyGraph>(graph).launch(graph, on, &at);
}

void keep_turn(PyObject* graph) {
  auto& self = unchecked<PyGraph>(graph);
  without_gil([&] { self.graph().lock_launch_order(); });
}

void give_turn_back(PyObject* graph) {
  auto& self = unchecked<PyGraph>(graph);
  without_gil([&] { self.graph().unlock_launch_order(); });
}

void note_graph_use(PyObject* graph, const CurrentStream& on) {
  auto& self = unchecked<PyGraph>(graph);
  without_gil([&] { self.graph().note_use(on.handle); });
}

void bind_graphs_graph(py::module_& module) {
  py::class_<graphs::LaunchOrder, std::shared_ptr<graphs::LaunchOrder>>(module, "_LaunchOrder")
      .def(py::init(&std::make_shared<graphs::LaunchOrder>))
      .def_property_readonly("launches", &graphs::LaunchOrder::launches);
  py::class_<PyGraph> graph(module, "GraphBase", "What `CapturedGraph` has of the driver.");
  bind_making(graph);
  bind_looking(graph);
  add_method(graph, launch_method);
  module.def("_drain_kept", &drain_kept);
}

}  // namespace gpuprof::bindings
