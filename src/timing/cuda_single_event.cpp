#include <stdexcept>

#include "driver/cuda_thread_state.hpp"
#include "timing/cuda_capture.hpp"
#include "timing/cuda_contexts.hpp"
#include "timing/cuda_event_clock.hpp"
#include "timing/device.hpp"
#include "timing/single_event.hpp"

namespace gpuprof::timing {

using contexts::as_stream;
using driver::check;
using driver::Error;
using driver::ErrorKind;

std::uintptr_t SingleEvent::handle() const noexcept {
  return event_ ? reinterpret_cast<std::uintptr_t>(event_->handle()) : 0;
}

std::optional<int> SingleEvent::ordinal() const noexcept {
  return event_ ? std::optional(event_->clock().ordinal()) : std::nullopt;
}

void SingleEvent::refuse_after_fork() const {
  if (!device::forked()) return;
  throw Error(
      ErrorKind::kForked,
      "the event was recorded before this process was forked, and the parent's CUDA objects "
      "cannot be used here");
}

bool SingleEvent::record(std::uintptr_t stream, int ordinal) {
  const driver::Table& table = driver::ready();
  const contexts::Found found = contexts::find(table, stream, ordinal);
  if (event_ && (&event_->clock() != found.clock || found.clock->lost())) return false;
  const driver::CurrentContext current(table, found.to_push);
  const auto event = event_ ? event_ : std::make_shared<const OwnEvent>(*found.clock);
  captures::State capture;
  if (external_) capture = captures::state_of(table, stream);
  if (capture.capturing()) {
    check(found.access.record_in_graph(event->handle(), as_stream(stream)),
          "cuEventRecordWithFlags");
    capture_owner.keep(capture.id, event);
  } else {
    check(found.access.record(event->handle(), as_stream(stream)), "cuEventRecord");
  }
  event_ = event;
  return true;
}

bool SingleEvent::is_reached() const {
  if (!event_) return true;
  refuse_after_fork();
  const driver::Table& table = driver::ready();
  const driver::EventAccess access = event_->clock().access();
  const driver::RelaxedCapture relaxed(table);
  const CUresult status = access.query(event_->handle());
  if (status == CUDA_ERROR_NOT_READY) return false;
  check(status, "cuEventQuery");
  return true;
}

bool SingleEvent::wait(HostNanoseconds until) const {
  return poll_until(until, [this] { return is_reached(); });
}

void SingleEvent::let_wait(std::uintptr_t stream, int ordinal) const {
  if (!event_) return;
  refuse_after_fork();
  const driver::Table& table = driver::ready();
  const contexts::Found found = contexts::find(table, stream, ordinal);
  const driver::CurrentContext current(table, found.to_push);
  const driver::EventAccess access = event_->clock().access();
  captures::State capture;
  if (external_) capture = captures::state_of(table, stream);
  const unsigned flags = capture.capturing() ? CU_EVENT_WAIT_EXTERNAL : CU_EVENT_WAIT_DEFAULT;
  check(access.let_wait(as_stream(stream), event_->handle(), flags), "cuStreamWaitEvent");
  if (capture.capturing()) capture_owner.keep(capture.id, event_);
}

double SingleEvent::elapsed_ms(const SingleEvent& end) const {
  if (!recorded() || !end.recorded()) {
    throw std::invalid_argument("Both events must be recorded before calculating elapsed time");
  }
  refuse_after_fork();
  end.refuse_after_fork();
  if (&event_->clock() != &end.event_->clock()) {
    driver::refuse(
        "the two events were recorded on different devices or contexts, whose times cannot "
        "be compared");
  }
  static_cast<void>(driver::ready());
  const driver::EventAccess access = event_->clock().access();
  float ms = 0.0F;
  const CUresult status = access.elapsed(ms, event_->handle(), end.event_->handle());
  if (status == CUDA_ERROR_NOT_READY) {
    driver::refuse(
        "the GPU has not reached both events yet; call synchronize() on the later one "
        "before elapsed_time()");
  }
  if (status == CUDA_ERROR_INVALID_HANDLE) {
    throw Error(ErrorKind::kNotReplayed,
                "an event is recorded by a CUDA graph that has not been replayed yet; launch the "
                "graph, then ask for the time");
  }
  check(status, "cuEventElapsedTime");
  return static_cast<double>(ms);
}

}  // namespace gpuprof::timing
