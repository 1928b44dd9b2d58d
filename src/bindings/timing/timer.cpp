// gpuprof.Timer: an event pair that the caller sets and reads.
#include "timing/timer.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

#include <memory>
#include <string>

#include "bindings/bind.hpp"
#include "bindings/interop/streams.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"
#include "bindings/python/objects.hpp"
#include "bindings/python/queueing.hpp"
#include "timing/device.hpp"
#include "timing/scope.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

// A Timer with what only Python has: the backend to synchronise and the stream to keep alive.
class PyTimer {
 public:
  PyTimer(timing::ClockId clock, py::object synchronize, py::object stream)
      : timer_(clock), synchronize_(std::move(synchronize)), stream_(std::move(stream)) {}

  // A daemon thread may end in here at exit, by unwinding without the interpreter lock: the frames
  // own no Python object.
  void start(py::handle stream) {
    alone([&] {
      started_on_ = stream.is_none() ? stream_ : py::reinterpret_borrow<py::object>(stream);
      synchronize();
      if (timer_.clock() != timing::kCudaClock) {
        timer_.start(0, 0);
        return;
      }
      PyObject* owner = nullptr;
      const CurrentStream on = started_on_.is_none()
                                   ? current_stream(&owner)
                                   : CurrentStream{stream_handle(started_on_.ptr()), 0};
      if (owner != nullptr) started_on_ = py::reinterpret_steal<py::object>(owner);
      queue_without_gil({on.handle}, [&] { timer_.start(on.handle, on.ordinal); });
    });
  }

  void stop(py::handle stream) {
    alone([&] {
      std::uintptr_t on = timer_.sample() ? timer_.sample()->stream : 0;
      const bool is_cuda = timer_.clock() == timing::kCudaClock;
      if (!stream.is_none() && is_cuda) on = stream_handle(stream.ptr());
      synchronize();
      if (is_cuda && timer_.started()) {
        queue_without_gil({on, timer_.sample()->events}, [&] { timer_.stop(on); });
      } else {
        timer_.stop(on);
      }
    });
  }

  // The streams of the marks that are set.
  [[nodiscard]] py::typing::Tuple<py::int_, py::ellipsis> streams() const {
    if (closing_ || timer_.clock() != timing::kCudaClock || !timer_.started()) return py::tuple();
    if (!timer_.stopped()) return py::make_tuple(timer_.start_stream());
    return py::make_tuple(timer_.start_stream(), timer_.end_stream());
  }

  double elapsed_ms() {
    double ms = 0.0;
    alone([&] {
      wait_without_gil([&](timing::HostNanoseconds until) { return timer_.read(until, ms); });
    });
    return ms;
  }

  bool ready() { return !in_use_ && timer_.ready(); }

  void close() noexcept {
    closing_ = in_use_;
    if (in_use_) return;
    timer_.close();
    stream_ = py::none();
    started_on_ = py::none();
  }

  std::string describe() {
    const std::string clock = timing::clock_name(timer_.clock());
    if (closing_ || timer_.closed()) return "<gpuprof.Timer " + clock + ", closed>";
    if (!timer_.stopped()) return "<gpuprof.Timer " + clock + ", not stopped>";
    if (!ready()) return "<gpuprof.Timer " + clock + ", pending>";
    return "<gpuprof.Timer " + clock + ", " + std::to_string(elapsed_ms()) + " ms>";
  }

  [[nodiscard]] std::string clock() const { return timing::clock_name(timer_.clock()); }

 private:
  // Runs one call at a time: one that has let the interpreter lock go keeps others out, and a
  // close() meanwhile takes effect at its end.
  template <typename Work>
  void alone(Work&& work) {
    if (in_use_) {
      throw_invalid_state(closing_
                              ? "this Timer is closed; make a new one"
                              : "this Timer is in a call of another thread; threads that share "
                                "a Timer need a lock of yours around its calls");
    }
    in_use_ = true;
    with_cleanup(work, [this] {
      in_use_ = false;
      if (closing_) close();
    });
  }

  void synchronize() const {
    if (!synchronize_.is_none()) Py_DECREF(checked(PyObject_CallNoArgs(synchronize_.ptr())));
  }

  timing::Timer timer_;
  py::object synchronize_;
  py::object stream_;
  py::object started_on_ = py::none();
  bool in_use_ = false;
  bool closing_ = false;
};

template <void (PyTimer::*kSet)(py::handle)>
PyObject* set_mark(PyObject* self, PyObject* stream) {
  (unchecked<PyTimer>(self).*kSet)(stream);
  return Py_NewRef(Py_None);
}

PyMethodDef record_start_method{
    "record_start", &Guarded<&set_mark<&PyTimer::start>>::call, METH_O,
    "record_start(self: gpuprof._core.Timer, stream: typing.Any, /) -> None\n\n"
    "Set the first mark, on `stream` or the timer's own, and forget the second."};

PyMethodDef record_end_method{
    "record_end", &Guarded<&set_mark<&PyTimer::stop>>::call, METH_O,
    "record_end(self: gpuprof._core.Timer, stream: typing.Any, /) -> None\n\n"
    "Set the second mark, on `stream` or that of the first."};

std::unique_ptr<PyTimer> make_timer(const py::object& backend, py::object stream) {
  if (!stream.is_none()) stream_handle(stream.ptr());
  if (!py::isinstance<py::str>(backend)) {
    return std::make_unique<PyTimer>(timing::clock_id(backend.attr("name").cast<std::string>()),
                                     backend.attr("synchronize"), std::move(stream));
  }
  const auto name = backend.cast<std::string>();
  if (name == "cuda") timing::device::require();
  const bool cuda =
      name == "cuda" || (name == "auto" && (timing::scope::cuda_in_use() || framework_is_live()));
  return std::make_unique<PyTimer>(cuda ? timing::kCudaClock : timing::kCpuClock, py::none(),
                                   std::move(stream));
}

}  // namespace

void bind_timing_timer(py::module_& module) {
  py::class_<PyTimer> timer(module, "Timer");
  add_method(timer, record_start_method);
  add_method(timer, record_end_method);
  timer.def(py::init(&make_timer), py::arg("backend"), py::arg("stream"))
      .def("elapsed_ms", &PyTimer::elapsed_ms,
           "Milliseconds between the marks; waits for the GPU. 0.0 while a mark is missing.")
      .def_property_readonly("ready", &PyTimer::ready,
                             "Whether elapsed_ms() would return a measurement at once.")
      .def_property_readonly("streams", &PyTimer::streams,
                             "The handles of the streams of the marks that are set.")
      .def_property_readonly("clock", &PyTimer::clock, "What measures: 'cuda', 'cpu', ...")
      .def("close", &PyTimer::close, "Give the events back. Idempotent; never raises.")
      .def("__repr__", &PyTimer::describe);
}

}  // namespace gpuprof::bindings
