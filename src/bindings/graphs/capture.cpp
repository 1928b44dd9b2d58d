// Stream captures for Python: gpuprof._graphs.capture makes the public classes of them.
#include "bindings/graphs/capture.hpp"

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
#include "bindings/python/deferred_decref.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/gc_pause.hpp"
#include "bindings/ranges/listeners.hpp"
#include "bindings/ranges/open_ranges.hpp"
#include "bindings/ranges/own_ranges.hpp"
#include "graphs/capture.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using graphs::Capture;
using graphs::CaptureMode;
using graphs::CaptureOptions;
using graphs::CaptureStatus;

namespace {

// Keeps collections from breaking a capture, and shows it as a range. Each is undone by whichever
// of end(), abort() and the destructor comes first.
class PyCapture {
 public:
  PyCapture() = default;
  PyCapture(const PyCapture&) = delete;
  PyCapture& operator=(const PyCapture&) = delete;
  ~PyCapture() { abort(); }

  // Puts back what captures hold that were ended with their thread.
  static void close_lost() {
    for (PyCapture* each : std::vector<PyCapture*>(everyone())) {
      if (each->capture_ && !each->capture_->attached() && !each->capture_->open()) each->close();
    }
  }

  void begin(std::uintptr_t stream, int ordinal, const CaptureOptions& options) {
    open();
    try {
      capture_ = Capture::begin(stream, ordinal, options);
    } catch (...) {
      close();
      throw;
    }
  }

  // Collections are relaxed and the range is open already while the framework begins.
  void prepare() { open(); }

  void attach(std::uintptr_t stream, const CaptureOptions& options) {
    try {
      capture_ = Capture::attach(stream, options);
    } catch (...) {
      close();
      throw;
    }
  }

  std::unique_ptr<EndedCapture> end() {
    Capture& capture = begun();
    try {
      auto ended = std::make_unique<EndedCapture>(capture.end());
      if (!capture.attached()) close();
      return ended;
    } catch (...) {
      if (!capture.open()) close();
      throw;
    }
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
  static std::vector<PyCapture*>& everyone() {
    static auto& storage = *new std::vector<PyCapture*>;
    return storage;
  }

  void open() {
    close_lost();
    drain_kept();
    everyone().push_back(this);
    collections_.begin();
    if (listens(kNvtx)) {
      try {
        open_ranges::open(this, shown(OwnRange::kCapture), kNvtx);
        shown_ = true;
      } catch (...) {
        collections_.end();
        throw;
      }
    }
  }

  std::shared_ptr<Capture> capture_;
  RelaxedCollections collections_;
  bool shown_ = false;
};

CaptureOptions options_of(int mode, int timers) {
  return {static_cast<CaptureMode>(mode), static_cast<graphs::GraphTimers>(timers)};
}

using Facts = py::typing::Dict<py::str, py::object>;

Facts describe(const Capture& capture) {
  const graphs::CaptureProgress progress = capture.progress();
  Facts facts;
  facts["id"] = capture.id();
  facts["stream"] = capture.stream();
  facts["mode"] = static_cast<int>(capture.options().mode);
  facts["thread"] = capture.thread();
  facts["num_nodes"] =
      progress.known ? py::object(py::int_(progress.nodes)) : py::object(py::none());
  facts["last_kernel"] = progress.last_kernel;
  facts["attached"] = capture.attached();
  return facts;
}

using Log = py::typing::List<py::typing::Tuple<py::bool_, py::str>>;

Log log_of(const Capture& capture) {
  Log lines;
  for (const driver::LogLine& line : capture.log()) {
    lines.append(py::make_tuple(
        line.own, py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
                      line.text.data(), static_cast<Py_ssize_t>(line.text.size()), "replace"))));
  }
  return lines;
}

std::optional<std::size_t> nodes_seen(const PyCapture& capture) {
  const graphs::CaptureProgress progress = capture.begun().progress();
  return progress.known ? std::optional(progress.nodes) : std::nullopt;
}

void bind_capture(py::module_& module) {
  py::class_<PyCapture>(module, "_Capture")
      .def(py::init<>())
      .def(
          "begin",
          [](PyCapture& self, std::uintptr_t stream, int ordinal, int mode, int timers) {
            self.begin(stream, ordinal, options_of(mode, timers));
          },
          py::arg("stream"), py::arg("ordinal"), py::arg("mode"), py::arg("timers"))
      .def("prepare", &PyCapture::prepare)
      .def(
          "attach",
          [](PyCapture& self, std::uintptr_t stream, int mode, int timers) {
            self.attach(stream, options_of(mode, timers));
          },
          py::arg("stream"), py::arg("mode"), py::arg("timers"))
      .def("end", &PyCapture::end)
      .def("close", &PyCapture::close)
      .def("abort", &PyCapture::abort)
      .def("look", [](const PyCapture& self) { self.begun().look(); })
      .def("status",
           [](const PyCapture& self) {
             return self.is_open() ? static_cast<int>(self.begun().status()) : 0;
           })
      .def_property_readonly("is_open", &PyCapture::is_open)
      .def_property_readonly("num_nodes", &nodes_seen)
      .def("facts", [](const PyCapture& self) { return describe(self.begun()); })
      .def("log", [](const PyCapture& self) { return log_of(self.begun()); });
}

}  // namespace

void close_lost_captures() { PyCapture::close_lost(); }

void bind_graphs_capture(py::module_& module) {
  graphs::own_captured_scopes();
  py::class_<EndedCapture>(module, "_EndedCapture")
      .def_property_readonly("graph", [](const EndedCapture& self) {
        return reinterpret_cast<std::uintptr_t>(self.parts.graph);
      });
  bind_capture(module);
  module.def("_open_captures", [] {
    py::typing::List<Facts> all;
    for (const auto& capture : graphs::open_captures()) all.append(describe(*capture));
    return all;
  });
  module.def("_capture_of", [](std::uintptr_t stream, int ordinal) {
    const graphs::StreamCapture found = graphs::capture_of(stream, ordinal);
    return std::make_tuple(static_cast<int>(found.status), found.id, found.nodes);
  });
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
  const auto os = py::module_::import("os");
  if (py::hasattr(os, "register_at_fork")) {
    os.attr("register_at_fork")(py::arg("after_in_child") =
                                    py::cpp_function(&end_relaxed_collections));
  }
}

}  // namespace gpuprof::bindings
