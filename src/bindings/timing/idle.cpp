// A thread that looks whether the GPU is idle, and lets Python note where the program is then.
//
// It takes the interpreter lock only for that, so it costs Python nothing while the GPU works. It
// waits for that lock as any thread does, so nothing may be waited for with the lock held that
// waits for it: stop() lets it go.
#include <Python.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/python/gil.hpp"
#include "cupti/session.hpp"
#include "timing/device.hpp"
#include "timing/ticker.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using timing::HostNanoseconds;
using timing::device::Work;

namespace {

class IdleLooks {
 public:
  explicit IdleLooks(py::object note) : note_(std::move(note)) {
    ticker_ = std::make_unique<timing::Ticker>("gpuprof-idle", [this] { return look(); });
  }
  IdleLooks(const IdleLooks&) = delete;
  IdleLooks& operator=(const IdleLooks&) = delete;
  ~IdleLooks() { stop(); }

  void stop() {
    if (ticker_ == nullptr) return;
    without_gil([ticker = std::move(ticker_)]() mutable { ticker.reset(); });
  }

  // When it first knew anything; 0 if it never did.
  [[nodiscard]] HostNanoseconds since() const noexcept { return since_.load(); }
  // For how long only open scopes were there to ask.
  [[nodiscard]] HostNanoseconds not_known() const noexcept { return not_known_.load(); }

 private:
  // The whole slots that no look has counted yet.
  HostNanoseconds count_slots() {
    constexpr HostNanoseconds kSlot = timing::Ticker::kSlot;
    const HostNanoseconds ns = (timing::monotonic_now() - counted_) / kSlot * kSlot;
    counted_ += ns;
    return ns;
  }

  bool look() {
    threads_.clear();
    const Work work = timing::device::work_left(threads_);
    const bool is_collecting = cupti::is_collecting();  // then the records will tell
    const HostNanoseconds since = counted_;
    const HostNanoseconds ns = count_slots();
    if (work == Work::kUnseen && !is_collecting) return true;
    if (since_.load() == 0 && work != Work::kUnseen) since_ = since;
    if (work == Work::kUnderWay) return true;
    if (work == Work::kScopeOpen && !is_collecting) {
      not_known_ += ns;
      return true;
    }
    return note(ns, work == Work::kNone, is_collecting);
  }

  bool note(HostNanoseconds ns, bool is_idle, bool is_collecting) {
    if (is_finalizing()) return false;
    const HostNanoseconds now = timing::monotonic_now();
    const PyGILState_STATE state = PyGILState_Ensure();
    ns += count_slots();  // while another thread had the lock, at the line that is noted now
    try {
      note_(now, ns, is_idle, is_collecting, threads_);
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("gpuprof.idle");
    }
    PyGILState_Release(state);
    return true;
  }

  py::object note_;
  std::atomic<HostNanoseconds> since_{0};
  std::atomic<HostNanoseconds> not_known_{0};
  // Of the ticker's thread alone.
  HostNanoseconds counted_ = timing::monotonic_now();
  std::vector<std::uintptr_t> threads_;
  std::unique_ptr<timing::Ticker> ticker_;
};

}  // namespace

void bind_timing_idle(py::module_& module) {
  py::class_<IdleLooks>(module, "_IdleLooks")
      .def(py::init<py::object>(), py::arg("note"))
      .def("stop", &IdleLooks::stop)
      .def_property_readonly("since_ns", &IdleLooks::since)
      .def_property_readonly("not_known_ns", &IdleLooks::not_known);
}

}  // namespace gpuprof::bindings
