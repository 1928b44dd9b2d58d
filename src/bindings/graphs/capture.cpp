// Stream captures for Python: gpuprof._graphs.capture makes the public classes of them.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/graphs/launch.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"
#include "bindings/python/keep_alive.hpp"
#include "bindings/python/objects.hpp"
#include "bindings/python/switches.hpp"
#include "bindings/ranges/open_ranges.hpp"
#include "bindings/ranges/range_attributes.hpp"
#include "bindings/ranges/scope_stack.hpp"
#include "driver/process.hpp"
#include "graphs/capture.hpp"
#include "graphs/diagnosis.hpp"
#include "text/kernel_name.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using graphs::Capture;
using graphs::CaptureMode;
using graphs::CaptureOptions;
using graphs::CaptureStatus;

namespace {

CaptureOptions capture_options(int mode, int timers) {
  return {static_cast<CaptureMode>(mode), static_cast<graphs::GraphTimers>(timers),
          &current_scope_stack().path()};
}

// Keeps collections from breaking a capture, and shows it as a range. Each is undone by whichever
// of end(), abort() and the destructor comes first.
class PyCapture {
 public:
  ~PyCapture() { abort(); }

  // Puts back what captures hold that were ended with their thread.
  static void close_lost() {
    for (PyCapture* each : std::vector<PyCapture*>(everyone())) {
      if (each->capture_ && !each->capture_->attached() && !each->capture_->open()) each->close();
    }
  }

  void begin(std::uintptr_t stream, int ordinal, int mode, int timers) {
    prepare();
    const auto begin_it = [&] {
      const graphs::CaptureOptions options = capture_options(mode, timers);
      capture_ = without_gil([&] { return Capture::begin(stream, ordinal, options); });
    };
    or_undo(begin_it, [this] { close(); });
  }

  // Collections are relaxed and the range is open already while the framework begins.
  void prepare() {
    close_lost();
    drain_kept();
    everyone().push_back(this);
    collections_.begin();
    if (!listens(kNvtx)) return;
    or_undo([this] { open_ranges::open(this, shown(OwnRange::kCapture), kNvtx); },
            [this] { collections_.end(); });
    shown_ = true;
  }

  void attach(std::uintptr_t stream, int mode, int timers) {
    or_undo([&] { capture_ = Capture::attach(stream, capture_options(mode, timers)); },
            [this] { close(); });
  }

  std::unique_ptr<graphs::CapturedParts> end() {
    Capture& capture = begun();
    const auto end_it = [&] {
      auto ended = std::make_unique<graphs::CapturedParts>(capture.end());
      if (!capture.attached()) close();
      return ended;
    };
    return or_undo(end_it, [&] {
      if (!capture.open()) close();
    });
  }

  // After the framework has ended an attached capture, and for one that never began.
  void close() {
    if (shown_) open_ranges::close(this, false);
    shown_ = false;
    collections_.end();
    auto& all = everyone();
    all.erase(std::remove(all.begin(), all.end(), this), all.end());
  }

  void abort() {
    if (capture_) capture_->abort();
    close();
  }

  [[nodiscard]] Capture& begun() const {
    if (!capture_) throw_invalid_state("this capture has not begun");
    return *capture_;
  }
  [[nodiscard]] bool is_open() const noexcept { return capture_ && capture_->open(); }

 private:
  // Those that hold something back. With the interpreter lock.
  static std::vector<PyCapture*>& everyone() { return driver::immortal<std::vector<PyCapture*>>(); }

  std::shared_ptr<Capture> capture_;
  RelaxedCollections collections_;
  bool shown_ = false;
};

using Facts = py::typing::Dict<py::str, py::object>;

Facts capture_facts(const Capture& capture) {
  const graphs::CaptureProgress progress = capture.progress();
  Facts facts;
  facts["id"] = capture.id();
  facts["stream"] = capture.stream();
  facts["mode"] = static_cast<int>(capture.options().mode);
  facts["thread"] = capture.thread();
  facts["num_nodes"] = progress.nodes;
  facts["last_kernel"] = progress.last_kernel;
  return facts;
}

using Log = py::typing::List<py::typing::Tuple<py::bool_, py::str>>;

Log log_of(const Capture& capture) {
  Log lines;
  for (const driver::LogLine& line : capture.log()) {
    lines.append(py::make_tuple(line.own, from_utf8(line.text)));
  }
  return lines;
}

using OwnedLines = std::vector<std::pair<bool, std::string>>;

// Name, mode, number of nodes, last kernel, log, what broke it and where, and the stream. A text is
// empty where it is not known.
using KnownFacts =
    std::tuple<std::string, std::string, std::optional<std::size_t>, std::string,
               std::optional<OwnedLines>, std::string, std::string, std::optional<std::uintptr_t>>;

graphs::CaptureFacts facts_from(const KnownFacts& known) {
  const auto& [name, mode, num_nodes, last_kernel, log, op, where, stream] = known;
  graphs::CaptureFacts facts;
  facts.name = name;
  facts.mode = mode;
  facts.nodes = num_nodes;
  facts.last_kernel = graph_text::short_name(graph_text::demangled(last_kernel));
  facts.keeps_log = log.has_value();
  for (const auto& [own, text] : log.value_or(OwnedLines())) facts.log.push_back({own, text});
  facts.op = op;
  facts.where = where;
  facts.stream = stream;
  facts.can_watch = true;
  return facts;
}

void bind_diagnosis(py::module_& module) {
  module.def(
      "_diagnose",
      [](int code, const std::string& call, const std::string& detail, const KnownFacts& facts) {
        graphs::Diagnosis found = graphs::diagnose(code, call, detail, facts_from(facts));
        return std::make_tuple(found.code, found.first_refused, found.hint, found.text);
      },
      py::arg("code"), py::arg("call"), py::arg("detail"), py::arg("facts"),
      "(code, first refused call, hint, text) of an error of a capture.");
  module.def(
      "_diagnosis_note",
      [](const KnownFacts& facts) { return graphs::diagnosis_note(facts_from(facts)); },
      py::arg("facts"));
}

void bind_capture(py::module_& module) {
  py::class_<PyCapture>(module, "_Capture")
      .def(py::init<>())
      .def("begin", &PyCapture::begin, py::arg("stream"), py::arg("ordinal"), py::arg("mode"),
           py::arg("timers"))
      .def("prepare", &PyCapture::prepare)
      .def("attach", &PyCapture::attach, py::arg("stream"), py::arg("mode"), py::arg("timers"))
      .def("end", &PyCapture::end)
      .def("close", &PyCapture::close)
      .def("abort", &PyCapture::abort)
      .def("look", [](const PyCapture& self) { self.begun().look(); })
      .def("status",
           [](const PyCapture& self) {
             return self.is_open() ? static_cast<int>(self.begun().status()) : 0;
           })
      .def_property_readonly("is_open", &PyCapture::is_open)
      .def("facts", [](const PyCapture& self) { return capture_facts(self.begun()); })
      .def("log", [](const PyCapture& self) { return log_of(self.begun()); });
}

// The `with` block of a capture, as far as it has to be C: an interrupt can come before the first
// line of any Python function, and so before that of an __exit__ that would end the capture.
//
// A subclass has _guard, which is None until _enter() sets it, _leave(kind, error, traceback), and
// _discard(), which undoes whatever those two have left and may be called at any time. An exception
// out of them is raised after _discard(), except that a second _enter() touches nothing.

constexpr int kTries = 3;  // another interrupt may cut one short

// With an exception set; afterwards it is, or what came out of the last _discard() instead.
void discard_block(PyObject* self) {
  TakenException raised;
  for (int tries = 0; tries < kTries; ++tries) {
    PyObject* done = PyObject_CallMethod(self, "_discard", nullptr);
    if (done != nullptr) {
      Py_DECREF(done);
      break;
    }
    raised.drop();
    raised = TakenException();
  }
  raised.put_back();
}

PyObject* enter_block(PyObject* self, PyObject* /*unused*/) {
  PyObject* guard = PyObject_GetAttrString(self, "_guard");
  if (guard == nullptr) return nullptr;
  const bool is_first = guard == Py_None;  // else what is open now is not this call's
  Py_DECREF(guard);
  PyObject* result = PyObject_CallMethod(self, "_enter", nullptr);
  if (result == nullptr && is_first) discard_block(self);
  return result;
}

PyObject* leave_block(PyObject* self, PyObject* arguments) {
  PyObject* method = PyObject_GetAttrString(self, "_leave");
  PyObject* result = method != nullptr ? PyObject_CallObject(method, arguments) : nullptr;
  Py_XDECREF(method);
  if (result == nullptr) discard_block(self);
  return result;
}

PyMethodDef block_methods[] = {
    {"__enter__", &enter_block, METH_NOARGS,
     "__enter__(self: gpuprof._core._CaptureBlock) -> typing.Any\n\nBegin the capture."},
    {"__exit__", &leave_block, METH_VARARGS,
     "__exit__(self: gpuprof._core._CaptureBlock, type: typing.Any, value: typing.Any, traceback: "
     "typing.Any) -> None\n\nEnd the capture, or discard it after an exception."},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot block_slots[] = {{Py_tp_methods, block_methods},
                             {Py_tp_doc, const_cast<char*>("The block of a capture.")},
                             {0, nullptr}};
PyType_Spec block_spec{"gpuprof._core._CaptureBlock", sizeof(PyObject), 0,
                       Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, block_slots};

}  // namespace

void close_lost_captures() { PyCapture::close_lost(); }

void bind_graphs_capture(py::module_& module) {
  graphs::own_captured_scopes();
  add_type(module, block_spec);
  const py::class_<graphs::CapturedParts> ended(module, "_EndedCapture");
  bind_capture(module);
  bind_diagnosis(module);
  module.def("_open_captures", [] {
    py::typing::List<Facts> all;
    for (const auto& capture : graphs::open_captures()) all.append(capture_facts(*capture));
    return all;
  });
  module.def(
      "_capture_of",
      [](std::uintptr_t stream, int ordinal, std::size_t since) {
        const graphs::StreamCapture found = graphs::capture_of(stream, ordinal, since);
        return std::make_tuple(static_cast<int>(found.status), found.id, found.nodes, found.works);
      },
      py::arg("stream"), py::arg("ordinal"), py::arg("since") = SIZE_MAX,
      "(status, id, nodes, whether a node from number `since` on does work).");
  module.def(
      "_capture_status",
      [](std::uintptr_t stream, int ordinal) {
        return static_cast<int>(graphs::status_of(stream, ordinal));
      },
      py::arg("stream"), py::arg("ordinal") = 0);
  module.def("_exchange_capture_mode", [](int mode) {
    return static_cast<int>(graphs::exchange_thread_mode(static_cast<CaptureMode>(mode)));
  });
  module.def("_drop_capture", &graphs::drop_capture, py::arg("stream"));
  module.def("_begin_empty_capture", &graphs::begin_empty_capture, py::arg("stream"));
  module.def("_relaxed_collections", &relaxed_collections);
  py::module_::import("os").attr("register_at_fork")(
      py::arg("after_in_child") = py::cpp_function(&end_relaxed_collections));
}

}  // namespace gpuprof::bindings
