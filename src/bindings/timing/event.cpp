// The single event below gpuprof.compat.Event: CUDA's, or a moment of the host's clock.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "bindings/bind.hpp"
#include "bindings/interop/streams.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"
#include "bindings/python/queueing.hpp"
#include "driver/error.hpp"
#include "driver/host_clock.hpp"
#include "timing/device.hpp"
#include "timing/single_event.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

CurrentStream stream_of(py::handle stream) {
  return stream.is_none() ? current_stream() : CurrentStream{stream_handle(stream.ptr()), 0};
}

// Asked anew each time, unlike a scope's answer, which may be some milliseconds old.
bool uses_cuda() {
  return timing::device::poisoned() || timing::device::current_on_this_thread() ||
         framework_is_live();
}

// A process that does not use CUDA gets the host's clock, decided at each record; an event of the
// GPU stays one, so that a forked child is told.
class PyEvent {
 public:
  explicit PyEvent(bool external)
      : external_(external), event_(std::make_shared<timing::SingleEvent>(external)) {}

  void record(py::handle stream) {
    if (!event_->recorded() && !uses_cuda()) {
      recorded_at_ = timing::host_now();
      return;
    }
    const CurrentStream on = stream_of(stream);
    // What other threads may be using meanwhile stays as it is.
    auto event = event_->recorded() ? event_ : std::make_shared<timing::SingleEvent>(external_);
    queue_without_gil({on.handle}, [&] {
      if (event->record(on.handle, on.ordinal)) return;
      event = std::make_shared<timing::SingleEvent>(external_);
      event->record(on.handle, on.ordinal);
    });
    event_ = std::move(event);
    recorded_at_ = 0;
  }

  [[nodiscard]] bool query() const { return recorded_at_ != 0 || event_->is_reached(); }

  void synchronize() const {
    if (recorded_at_ != 0) return;
    wait_without_gil(
        [event = event_](timing::HostNanoseconds until) { return event->wait(until); });
  }

  void wait(py::handle stream) const {
    if (recorded_at_ != 0 || !event_->recorded()) return;
    const CurrentStream on = stream_of(stream);
    queue_without_gil({on.handle}, [&, event = event_] { event->let_wait(on.handle, on.ordinal); });
  }

  [[nodiscard]] double elapsed_ms(const PyEvent& end) const {
    if (recorded_at_ != 0 && end.recorded_at_ != 0) {
      return timing::milliseconds(end.recorded_at_ - recorded_at_);
    }
    const bool differ = (recorded_at_ != 0 && end.event_->recorded()) ||
                        (end.recorded_at_ != 0 && event_->recorded());
    if (differ) {
      driver::refuse(
          "one event has the host's time and the other the GPU's, because CUDA came into use "
          "between them; record both again");
    }
    return event_->elapsed_ms(*end.event_);
  }

  [[nodiscard]] std::uintptr_t handle() const noexcept { return event_->handle(); }
  [[nodiscard]] std::optional<int> device() const noexcept { return event_->ordinal(); }

  [[nodiscard]] const char* clock() const noexcept {
    if (recorded_at_ != 0) return "cpu";
    return event_->recorded() ? "cuda" : "";
  }

 private:
  bool external_;
  // Replaced with the interpreter lock; a call that lets that go uses the one that was there.
  std::shared_ptr<timing::SingleEvent> event_;
  timing::HostNanoseconds recorded_at_ = 0;  // on the host's clock; 0: not there
};

}  // namespace

void bind_timing_event(py::module_& module) {
  py::class_<PyEvent>(module, "_Event", "One event, recorded and read by hand.")
      .def(py::init<bool>(), py::arg("external"))
      .def("record", &PyEvent::record, py::arg("stream") = py::none())
      .def("query", &PyEvent::query)
      .def("synchronize", &PyEvent::synchronize)
      .def("wait", &PyEvent::wait, py::arg("stream") = py::none())
      .def("elapsed_ms", &PyEvent::elapsed_ms, py::arg("end"))
      .def_property_readonly("handle", &PyEvent::handle)
      .def_property_readonly("device", &PyEvent::device)
      .def_property_readonly("clock", &PyEvent::clock);
}

}  // namespace gpuprof::bindings
