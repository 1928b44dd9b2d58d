// Launches of a CapturedGraph, and their order.
#include <utility>

#include "driver/cuda_thread_state.hpp"
#include "graphs/captured_graph.hpp"
#include "graphs/cuda_handles.hpp"
#include "timing/cuda_capture.hpp"
#include "timing/cuda_contexts.hpp"
#include "timing/scope.hpp"

namespace gpuprof::graphs {

using driver::check;
using driver::Error;
using driver::EventAccess;
using driver::Table;
using timing::Sample;
using timing::captures::is_capturing;
using timing::contexts::as_stream;
using timing::contexts::id_of;

namespace {

// Copies are changed in the graph's context.
CUcontext to_push(std::uintptr_t stream, const IoCopies& copies,
                  const timing::EventClock& clock) noexcept {
  return copies.empty() ? timing::contexts::to_push(stream, clock) : clock.context();
}

}  // namespace

std::unique_lock<std::mutex> CapturedGraph::enter_launch(std::thread::id caller) {
  auto lock = enter();
  if (order_->exclusive_count_ == 0 || order_->exclusive_thread_ == caller) return lock;
  lock.unlock();
  const std::lock_guard exclusive(
      order_->exclusive_);  // nobody else takes it until we have the lock
  return enter();
}

void CapturedGraph::throw_if_capturing(const Table& table, std::uintptr_t stream) const {
  if (!is_capturing(table, stream)) return;
  refuse("the stream " + std::to_string(stream) +
         " is being captured, and a graph cannot be launched into a capture; launch it on "
         "another stream, or after the capture. (The driver was not called: it would have "
         "broken the capture.)");
}

// With the lock held, the context of a default stream current, and `last_` there. The driver itself
// orders the launches of one executable graph.
void CapturedGraph::wait_for_previous(const Table& table, const EventAccess& access,
                                      std::uintptr_t stream) {
  LaunchOrder& order = *order_;
  if (order.last_ == completed_ && !order.after_use_) return;
  timing::EventClock& clock = order.last_->clock();
  const auto access_to_last = &clock != clock_ ? clock.try_access() : access;
  if (!access_to_last) {
    order.last_.reset();
    return;
  }
  if (order.record_failed_) {
    const driver::CurrentContext current(table, clock.context());
    const driver::RelaxedCapture relaxed(table);
    check(table.cuCtxSynchronize(), "cuCtxSynchronize");
    order.last_.reset();
    return;
  }
  if (order.stream_id_ != 0 && order.stream_id_ == id_of(table, stream)) return;
  check(access_to_last->let_wait(as_stream(stream), order.last_->handle()), "cuStreamWaitEvent");
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

// With the lock held. Returns the driver's status of the record.
int CapturedGraph::record_completion(const Table& table, const EventAccess& access,
                                     std::uintptr_t stream) noexcept {
  LaunchOrder& order = *order_;
  const CUresult status = access.record(completed_->handle(), as_stream(stream));
  record_failed_ = status != CUDA_SUCCESS;
  if (order.last_ != completed_) order.last_ = completed_;
  order.stream_id_ = in_order_ ? id_of(table, stream) : 0;
  order.record_failed_ = record_failed_;
  return status;
}

void CapturedGraph::note_use(std::uintptr_t stream) {
  const auto lock = enter_launch(std::this_thread::get_id());
  const EventAccess access = throw_if_unusable();
  const Table& table = driver::ready();
  const driver::CurrentContext current(table, clock_->context());
  if (is_capturing(table, stream)) {
    refuse("the stream " + std::to_string(stream) +
           " is being captured, and launches cannot wait for work in a capture");
  }
  record_completions();
  in_order_ = true;
  if (order_->last_) wait_for_previous(table, access, stream);
  order_->after_use_ = true;
  check(static_cast<CUresult>(record_completion(table, access, stream)), "cuEventRecord");
}

// With the lock held, and the contexts of the stream and the copies current.
LaunchResult CapturedGraph::prepare_launch(const Table& table, const EventAccess& access,
                                           const LaunchRequest& request) {
  IoAddresses* const io = request.io;
  if (io == nullptr) {
    throw_if_capturing(table, request.stream);
  } else if (is_capturing(table, request.stream)) {
    return LaunchResult::kCapturing;
  }
  if (!copies_.empty()) {
    const std::ptrdiff_t refused =
        copies_.retarget(exec_, io != nullptr ? io->user_addresses : nullptr);
    if (refused >= 0) {
      io->refused = refused;
      return LaunchResult::kRefused;
    }
  }
  if (order_->last_) wait_for_previous(table, access, request.stream);
  if (!scalars_.empty()) wait_for_scalars(request.stream);
  Sample* const replay = request.replay;
  if (spans_.collects()) {
    if (replay == nullptr) {
      spans_.disarm(access, exec_);
    } else {
      spans_.prepare(access, exec_, *clock_);
    }
  }
  if (replay != nullptr) {
    replay->kind = timing::SpanKind::kReplay;
    replay->stream = request.stream;
    timing::scope::open_cuda(*replay, false, request.ordinal);
  }
  return LaunchResult::kLaunched;
}

// With the lock held. Counters are written under the lock only: no atomic addition is needed.
void CapturedGraph::launched(const EventAccess& access, const LaunchRequest& request) noexcept {
  for (ReadScalar& each : scalars_) each.waited_for = each.now;
  uploaded_.store(true, std::memory_order_relaxed);
  replays_.store(replays_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  order_->launches_.store(order_->launches() + 1, std::memory_order_relaxed);
  if (completed_) {
    payload_used_ = true;
    order_->after_use_ = false;
    record_completion(*driver::loaded_or_null(), access, request.stream);
  }
  if (request.replay == nullptr) return;
  if (spans_.collects()) spans_.launched(*request.replay);
  timing::scope::close_cuda(*request.replay);
}

void CapturedGraph::launch_failed(Sample* replay) noexcept {
  spans_.cancel();
  if (replay != nullptr) timing::scope::abandon(*replay);
}

LaunchResult CapturedGraph::launch(const LaunchRequest& request) {
  const auto lock = enter_launch(request.caller);
  const EventAccess access = throw_if_unusable();
  const Table& table = *driver::loaded_or_null();
  const driver::CurrentContext current(table, to_push(request.stream, copies_, *clock_));
  const LaunchResult prepared = prepare_launch(table, access, request);
  if (prepared != LaunchResult::kLaunched) return prepared;
  const CUresult status = table.cuGraphLaunch(as_exec(exec_), as_stream(request.stream));
  if (status != CUDA_SUCCESS) {
    const Error error = driver::error_of(status, "cuGraphLaunch");
    launch_failed(request.replay);
    throw error;
  }
  launched(access, request);
  return LaunchResult::kLaunched;
}

LaunchResult CapturedGraph::begin_external_launch(const LaunchRequest& request) {
  const Table& table = driver::ready();
  std::unique_lock exclusive(order_->exclusive_);
  const auto lock = enter();
  const EventAccess access = throw_if_unusable();
  const driver::CurrentContext current(table, to_push(request.stream, copies_, *clock_));
  const LaunchResult prepared = prepare_launch(table, access, request);
  if (prepared == LaunchResult::kLaunched) begin_exclusive(std::move(exclusive));
  return prepared;
}

void CapturedGraph::end_external_launch(const LaunchRequest& request, bool launched_it) {
  const std::lock_guard lock(order_->mutex_);
  try {
    if (launched_it) {
      const EventAccess access = clock_->access();
      const driver::CurrentContext current(driver::ready(),
                                           to_push(request.stream, copies_, *clock_));
      launched(access, request);
    } else {
      launch_failed(request.replay);
    }
  } catch (...) {
    end_exclusive();
    throw;
  }
  end_exclusive();
}

void CapturedGraph::lock_launch_order() {
  driver::ready();  // before a lock that a forked child never gets
  std::unique_lock exclusive(order_->exclusive_);
  const auto lock = use();
  begin_exclusive(std::move(exclusive));
}

void CapturedGraph::unlock_launch_order() noexcept {
  const std::lock_guard lock(order_->mutex_);
  end_exclusive();
}

// With the lock held; keeps `lock` until end_exclusive().
void CapturedGraph::begin_exclusive(std::unique_lock<std::recursive_mutex> lock) noexcept {
  ++exclusive_count_;
  ++order_->exclusive_count_;
  order_->exclusive_thread_ = std::this_thread::get_id();
  lock.release();
}

// With the lock held.
void CapturedGraph::end_exclusive() noexcept {
  --exclusive_count_;
  --order_->exclusive_count_;
  order_->exclusive_.unlock();
  if (closed() && exclusive_count_ == 0) destroy();
}

}  // namespace gpuprof::graphs
