// Launches of a CapturedGraph, and whose turn they are.
#include <utility>

#include "driver/cuda_thread_state.hpp"
#include "graphs/captured_graph.hpp"
#include "graphs/cuda_handles.hpp"
#include "graphs/cuda_launch_event.hpp"
#include "timing/cuda_contexts.hpp"
#include "timing/cuda_event_clock.hpp"
#include "timing/queue_watch.hpp"
#include "timing/scope.hpp"

namespace gpuprof::graphs {

using driver::check;
using driver::Error;
using driver::ErrorKind;
using driver::EventAccess;
using driver::Table;
using timing::Sample;
using timing::contexts::as_stream;
using timing::contexts::id_of;

namespace {

// A default stream is one of whichever context is current, and copies are changed in the graph's.
CUcontext to_push(std::uintptr_t stream, const IoCopies& copies,
                  const timing::EventClock& clock) noexcept {
  const bool needed = timing::contexts::is_default_stream(stream) || !copies.empty();
  return needed ? clock.context() : nullptr;
}

bool is_capturing(const Table& table, std::uintptr_t stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  check(table.cuStreamIsCapturing(as_stream(stream), &status), "cuStreamIsCapturing");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace

std::unique_lock<std::mutex> CapturedGraph::enter_launch(bool wait) {
  auto lock = enter(wait);
  if (!lock.owns_lock() || turns_->holds_ == 0 || turns_->holder_ == std::this_thread::get_id()) {
    return lock;
  }
  lock.unlock();
  if (!wait) return lock;
  const std::lock_guard held(turns_->held_);  // nobody begins to until we are in
  return enter();
}

void CapturedGraph::check_stream(const Table& table, std::uintptr_t stream) const {
  if (!is_capturing(table, stream)) return;
  throw Error(ErrorKind::kInvalidState,
              "the stream " + std::to_string(stream) +
                  " is being captured, and a graph cannot be launched into a capture; launch it on "
                  "another stream, or after the capture. (The driver was not called: it would have "
                  "broken the capture.)");
}

// With the lock held, and the context of a default stream current. The driver itself runs the
// launches of one executable graph one after the other.
void CapturedGraph::wait_for_turn(const Table& table, const EventAccess& access,
                                  std::uintptr_t stream) {
  LaunchOrder& turns = *turns_;
  if (!turns.last_ || (turns.last_ == over_ && !turns.is_use_)) return;
  timing::EventClock& clock = turns.last_->clock;
  const auto access_to_last = &clock != clock_ ? clock.try_access() : access;
  if (!access_to_last) {
    turns.last_.reset();
    return;
  }
  if (turns.lost_track_) {
    const driver::CurrentContext current(table, clock.context());
    const driver::RelaxedCapture relaxed(table);
    check(table.cuCtxSynchronize(), "cuCtxSynchronize");
    turns.last_.reset();
    return;
  }
  if (turns.stream_id_ != 0 && turns.stream_id_ == id_of(table, stream)) return;
  check(access_to_last->let_wait(as_stream(stream), turns.last_->event), "cuStreamWaitEvent");
}

// With the lock held.
void CapturedGraph::wait_for_scalars(std::uintptr_t stream) {
  for (ReadScalar& each : scalars_) {
    const auto scalar = each.scalar.lock();
    each.now = scalar ? scalar->updates() : each.waited_for;
    if (each.now == each.waited_for || scalar->surely_updated_on(stream)) continue;
    scalar->order_before(stream,
                         "the graph reads a DeviceScalar whose last update is on a stream that is "
                         "being captured now, so that the launch cannot wait for it; launch before "
                         "the capture, or on that stream after it");
  }
}

// With the lock held. What the record of the event answered.
int CapturedGraph::record_turn(const Table& table, const EventAccess& access,
                               std::uintptr_t stream) noexcept {
  LaunchOrder& turns = *turns_;
  const CUresult status = access.record(over_->event, as_stream(stream));
  lost_track_ = status != CUDA_SUCCESS;
  if (turns.last_ != over_) turns.last_ = over_;
  turns.stream_id_ = in_order_ ? id_of(table, stream) : 0;
  turns.lost_track_ = lost_track_;
  return status;
}

void CapturedGraph::note_use(std::uintptr_t stream, int ordinal) {
  const auto lock = enter_launch(true);
  const EventAccess access = throw_if_unusable();
  static_cast<void>(ordinal);
  const Table& table = driver::ready();
  const driver::CurrentContext current(table, clock_->context());
  if (is_capturing(table, stream)) {
    throw Error(ErrorKind::kInvalidState,
                "the stream " + std::to_string(stream) +
                    " is being captured, and launches cannot wait for work in a capture");
  }
  if (!over_) over_ = std::make_shared<LaunchEvent>(*clock_);
  in_order_ = true;
  wait_for_turn(table, access, stream);
  turns_->is_use_ = true;
  check(static_cast<CUresult>(record_turn(table, access, stream)), "cuEventRecord");
}

// With the lock held, after a launch.
void CapturedGraph::note_launch(const EventAccess& access, std::uintptr_t stream) noexcept {
  for (ReadScalar& each : scalars_) each.waited_for = each.now;
  // Written with the lock held only, so that no atomic addition is needed.
  uploaded_.store(true, std::memory_order_relaxed);
  replays_.store(replays_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  turns_->launches_.store(turns_->launches() + 1, std::memory_order_relaxed);
  if (!over_) return;
  needed_ = true;
  turns_->is_use_ = false;
  record_turn(*driver::loaded_or_null(), access, stream);
}

// With the lock held.
PointedLaunch CapturedGraph::open_launch(const Table& table, const EventAccess& access,
                                         std::uintptr_t stream, int ordinal, Sample* replay,
                                         IoAddresses* at) {
  if (at == nullptr) {
    check_stream(table, stream);
  } else if (is_capturing(table, stream)) {
    return PointedLaunch::kCapturing;
  }
  if (!copies_.empty()) {
    const std::ptrdiff_t refused = copies_.point(exec_, at != nullptr ? at->outside : nullptr);
    if (refused >= 0) {
      at->refused = refused;
      return PointedLaunch::kRefused;
    }
  }
  wait_for_turn(table, access, stream);
  wait_for_scalars(stream);
  if (spans_.collects()) {
    if (replay == nullptr) {
      spans_.rest(access, exec_);
    } else {
      spans_.prepare(access, exec_, *clock_);
    }
  }
  if (replay != nullptr) {
    replay->kind = timing::SpanKind::kReplay;
    replay->stream = stream;
    timing::scope::open_cuda(*replay, false, ordinal);
  }
  return PointedLaunch::kLaunched;
}

// With the lock held.
void CapturedGraph::close_launch(Sample* replay, const Sample& launch) noexcept {
  if (spans_.collects()) spans_.launched(launch);
  if (replay != nullptr) timing::scope::close_cuda(*replay);
}

void CapturedGraph::fail_launch(Sample* replay) noexcept {
  spans_.cancel();
  if (replay != nullptr) timing::scope::abandon(*replay, timing::SampleStatus::kFailed);
}

PointedLaunch CapturedGraph::launch_locked(std::uintptr_t stream, int ordinal, Sample* replay,
                                           IoAddresses* at) {
  const EventAccess access = throw_if_unusable();
  const Table& table = *driver::loaded_or_null();
  const driver::CurrentContext current(table, to_push(stream, copies_, *clock_));
  const PointedLaunch opened = open_launch(table, access, stream, ordinal, replay, at);
  if (opened != PointedLaunch::kLaunched) return opened;
  const timing::QueueWatch watch(replays_.load(std::memory_order_relaxed));
  const CUresult status = table.cuGraphLaunch(as_exec(exec_), as_stream(stream));
  watch.note(stream);
  if (status != CUDA_SUCCESS) {
    const Error error = driver::error_of(status, "cuGraphLaunch");
    fail_launch(replay);
    throw error;
  }
  note_launch(access, stream);
  if (replay != nullptr) close_launch(replay, *replay);
  return PointedLaunch::kLaunched;
}

void CapturedGraph::launch(std::uintptr_t stream, int ordinal, Sample* replay) {
  const auto lock = enter_launch(true);
  launch_locked(stream, ordinal, replay, nullptr);
}

bool CapturedGraph::try_launch(std::uintptr_t stream, int ordinal, Sample* replay) {
  const auto lock = enter_launch(false);
  if (!lock.owns_lock()) return false;
  launch_locked(stream, ordinal, replay, nullptr);
  return true;
}

PointedLaunch CapturedGraph::launch_pointed(std::uintptr_t stream, int ordinal, Sample* replay,
                                            IoAddresses& at) {
  const auto lock = enter_launch(true);
  return launch_locked(stream, ordinal, replay, &at);
}

PointedLaunch CapturedGraph::try_launch_pointed(std::uintptr_t stream, int ordinal, Sample* replay,
                                                IoAddresses& at) {
  const auto lock = enter_launch(false);
  return lock.owns_lock() ? launch_locked(stream, ordinal, replay, &at) : PointedLaunch::kBusy;
}

void CapturedGraph::before_launch(std::uintptr_t stream, int ordinal, Sample* replay) {
  begin_by_framework(stream, ordinal, replay, nullptr);
}

PointedLaunch CapturedGraph::before_pointed_launch(std::uintptr_t stream, int ordinal,
                                                   Sample* replay, IoAddresses& at) {
  return begin_by_framework(stream, ordinal, replay, &at);
}

PointedLaunch CapturedGraph::begin_by_framework(std::uintptr_t stream, int ordinal, Sample* replay,
                                                IoAddresses* at) {
  throw_if_blocked();
  std::unique_lock held(turns_->held_);
  const auto lock = enter();
  const EventAccess access = throw_if_unusable();
  const Table& table = driver::ready();
  const driver::CurrentContext current(table, to_push(stream, copies_, *clock_));
  const PointedLaunch opened = open_launch(table, access, stream, ordinal, replay, at);
  if (opened == PointedLaunch::kLaunched) begin_hold(std::move(held));
  return opened;
}

void CapturedGraph::keep_turn() {
  throw_if_blocked();
  std::unique_lock held(turns_->held_);
  const auto lock = enter();
  throw_if_unusable();
  begin_hold(std::move(held));
}

void CapturedGraph::give_turn_back() noexcept {
  const std::lock_guard lock(turns_->mutex_);
  end_hold();
}

// With the lock held; until end_hold().
void CapturedGraph::begin_hold(std::unique_lock<std::recursive_mutex> held) noexcept {
  ++holds_;
  ++turns_->holds_;
  turns_->holder_ = std::this_thread::get_id();
  held.release();
}

// With the lock held.
void CapturedGraph::end_hold() noexcept {
  --holds_;
  --turns_->holds_;
  turns_->held_.unlock();
  if (closed() && holds_ == 0) take_apart();
}

void CapturedGraph::after_launch(std::uintptr_t stream, Sample* replay, bool launched) {
  const std::lock_guard lock(turns_->mutex_);
  try {
    if (launched) {
      const EventAccess access = clock_->access();
      const driver::CurrentContext current(driver::ready(), to_push(stream, copies_, *clock_));
      note_launch(access, stream);
      if (replay != nullptr) close_launch(replay, *replay);
    } else {
      fail_launch(replay);
    }
  } catch (...) {
    end_hold();
    throw;
  }
  end_hold();
}

}  // namespace gpuprof::graphs
