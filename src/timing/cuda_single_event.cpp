#include "driver/cuda_thread_state.hpp"
#include "driver/process.hpp"
#include "timing/cuda_contexts.hpp"
#include "timing/cuda_event_clock.hpp"
#include "timing/single_event.hpp"

namespace gpuprof::timing {

using contexts::as_stream;
using driver::check;
using driver::Error;
using driver::ErrorKind;

void SingleEvent::give_back() noexcept {
  if (event_ != nullptr && generation_ == driver::fork_generation()) {
    clock_->give_back({static_cast<CUevent>(event_), static_cast<CUevent>(spare_)});
  }
  event_ = spare_ = nullptr;
  clock_ = nullptr;
}

void SingleEvent::refuse_after_fork() const {
  if (event_ == nullptr || generation_ == driver::fork_generation()) return;
  throw Error(
      ErrorKind::kForked,
      "the event was recorded before this process was forked, and the parent's CUDA objects "
      "cannot be used here");
}

bool SingleEvent::record(std::uintptr_t stream, int ordinal) {
  const driver::Table& table = driver::ready();
  const contexts::Found found = contexts::find(table, stream, ordinal);
  const bool is_first = event_ == nullptr;
  if (!is_first && (clock_ != found.clock || clock_->lost())) return false;
  const driver::CurrentContext current(table, found.to_push);
  if (is_first) {
    EventPair pair;
    if (!found.clock->take(pair)) {
      throw Error(ErrorKind::kInvalidState,
                  "all 4096 event pairs of this context are in use; read or drop other events and "
                  "timers first");
    }
    clock_ = found.clock;
    event_ = pair.start;
    spare_ = pair.end;
    generation_ = driver::fork_generation();
  }
  const CUresult status = found.access.record(static_cast<CUevent>(event_), as_stream(stream));
  // An event from the pool still has the record of whoever had it before.
  if (status != CUDA_SUCCESS && is_first) give_back();
  check(status, "cuEventRecord");
  return true;
}

bool SingleEvent::is_reached() const {
  if (event_ == nullptr) return true;
  refuse_after_fork();
  const driver::Table& table = driver::ready();
  const driver::EventAccess access = clock_->access();
  const driver::RelaxedCapture relaxed(table);
  const CUresult status = access.query(static_cast<CUevent>(event_));
  if (status == CUDA_ERROR_NOT_READY) return false;
  check(status, "cuEventQuery");
  return true;
}

bool SingleEvent::wait(HostNanoseconds until) const {
  return poll_until(until, [this] { return is_reached(); });
}

void SingleEvent::let_wait(std::uintptr_t stream, int ordinal) const {
  if (event_ == nullptr) return;
  refuse_after_fork();
  const driver::Table& table = driver::ready();
  const contexts::Found found = contexts::find(table, stream, ordinal);
  const driver::CurrentContext current(table, found.to_push);
  const driver::EventAccess access = clock_->access();
  check(access.let_wait(as_stream(stream), static_cast<CUevent>(event_)), "cuStreamWaitEvent");
}

double SingleEvent::elapsed_ms(const SingleEvent& end) const {
  if (!recorded() || !end.recorded()) {
    throw Error(ErrorKind::kInvalidState,
                "an event was never recorded; call record() on both before elapsed_time()");
  }
  refuse_after_fork();
  end.refuse_after_fork();
  if (clock_ != end.clock_) {
    throw Error(ErrorKind::kInvalidState,
                "the two events were recorded on different devices or contexts, whose times cannot "
                "be compared");
  }
  static_cast<void>(driver::ready());
  const driver::EventAccess access = clock_->access();
  float ms = 0.0F;
  const CUresult status =
      access.elapsed(ms, static_cast<CUevent>(event_), static_cast<CUevent>(end.event_));
  if (status == CUDA_ERROR_NOT_READY) {
    throw Error(ErrorKind::kInvalidState,
                "the GPU has not reached both events yet; call synchronize() on the later one "
                "before elapsed_time()");
  }
  check(status, "cuEventElapsedTime");
  return static_cast<double>(ms);
}

}  // namespace gpuprof::timing
