#include "timing/cuda_event_clock.hpp"

#include <algorithm>
#include <array>

#include "driver/cuda_call_thread.hpp"
#include "driver/cuda_thread_state.hpp"
#include "timing/cuda_contexts.hpp"
#include "timing/statistics.hpp"

namespace gpuprof::timing {

using driver::Error;

namespace {

bool context_is_gone(const Error& error) noexcept {
  return error.code() == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

}  // namespace

void EventClock::note_loss() noexcept {
  if (driver::is_blocked()) return;  // the reason
  try {
    note_failure(Error(CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED",
                       "cuCtxGetId", "the context was destroyed or reset, and its events with it"));
  } catch (...) {  // out of memory: found again at the next look
  }
}

void EventClock::throw_loss() {
  driver::throw_if_blocked();
  const std::lock_guard lock(mutex_);
  if (loss_) throw Error(*loss_);
  throw Error(driver::ErrorKind::kGone, "the CUDA context is gone");
}

bool EventClock::take(EventPair& pair) {
  if (pop_free(pair)) return true;
  if (draining_.try_lock()) drain_and_unlock();
  if (pop_free(pair)) return true;
  if (make_pairs() && pop_free(pair)) return true;
  // All are in use. Wait for another thread's drain before giving up; and try again, because others
  // may take first what this thread drains.
  for (int tries = 0; tries < kTries; ++tries) {
    drain();
    if (pop_free(pair)) return true;
  }
  return false;
}

bool EventClock::pop_free(EventPair& pair) noexcept {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return false;
  pair = free_.back();
  free_.pop_back();
  return true;
}

bool EventClock::make_pairs() {
  {
    const std::lock_guard lock(mutex_);
    if (made_ >= kMaxPairs) return false;
    free_.reserve(kMaxPairs);  // so that giving back never allocates
    made_ += kMakeAtOnce;      // at once: another thread may be here too
  }
  std::size_t missing = kMakeAtOnce;
  try {
    destroy_dead();
    const driver::EventAccess access = this->access();
    const driver::CurrentContext current(table_, context_);
    for (; missing > 0; --missing) give_back(make_pair(access));
  } catch (...) {
    const std::lock_guard lock(mutex_);
    made_ -= std::min(made_, missing);
    throw;
  }
  return true;
}

EventPair EventClock::make_pair(const driver::EventAccess& access) const {
  EventPair pair;
  driver::check(table_.cuEventCreate(&pair.start, CU_EVENT_DEFAULT), "cuEventCreate");
  if (const CUresult status = table_.cuEventCreate(&pair.end, CU_EVENT_DEFAULT);
      status != CUDA_SUCCESS) {
    access.destroy(pair.start);
    throw driver::error_of(status, "cuEventCreate");
  }
  return pair;
}

CUevent EventClock::make_event(unsigned flags) {
  destroy_dead();
  static_cast<void>(access());
  const driver::CurrentContext current(table_, context_);
  CUevent event = nullptr;
  driver::check(table_.cuEventCreate(&event, flags), "cuEventCreate");
  return event;
}

void EventClock::destroy_later(CUevent event) noexcept {
  if (device::forked()) return;  // the lock may be held for good
  const std::lock_guard lock(mutex_);
  if (lost()) return;
  try {
    dead_.push_back(event);
  } catch (...) {  // out of memory: it dies with its context
  }
}

void EventClock::destroy_dead() noexcept {
  std::vector<CUevent> dead;
  {
    const std::lock_guard lock(mutex_);
    dead.swap(dead_);
  }
  const auto access = dead.empty() ? std::nullopt : try_access();
  for (const CUevent event : dead) {
    if (access) access->destroy(event);
  }
}

void EventClock::give_back(EventPair pair) noexcept {
  if (lost()) return;
  const std::lock_guard lock(mutex_);
  free_.push_back(pair);
}

void EventClock::push(Sample* sample) {
  const std::uintptr_t key =
      contexts::queue_of(sample->stream);  // before queueing: a drain may free the sample
  sample->queue = key;
  bool full = false;
  {
    const std::lock_guard lock(mutex_);
    if (last_queue_ == nullptr || key != last_key_) {
      last_queue_ = &queues_[key];
      last_key_ = key;
    }
    Queue& queue = *last_queue_;
    sample->next = nullptr;
    (queue.tail != nullptr ? queue.tail->next : queue.head) = sample;
    queue.tail = sample;
    queue.thread = driver::asking_thread();
    full = ++queue.size >= queue.next_try;
  }
  if (full) drain(key);
}

EventClock::Queue* EventClock::find_queue(std::uintptr_t queue) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = queues_.find(queue);
  return found != queues_.end() ? &found->second : nullptr;
}

void EventClock::drain(std::uintptr_t queue) noexcept {
  driver::look_for_hangs();
  const auto access = try_access();
  if (!draining_.try_lock()) return;
  // Only the draining thread erases queues, so the pointer stays valid without the lock.
  if (access) {
    if (Queue* found = find_queue(queue); found != nullptr) drain_queue(*found, *access);
    forget_if_empty(queue);
  }
  finish_drain();
}

void EventClock::drain() noexcept {
  draining_.lock();
  drain_and_unlock();
}

// With `draining_` held.
void EventClock::drain_and_unlock() noexcept {
  if (const auto access = try_access()) {
    std::vector<Queue*> waiting;
    try {
      const std::lock_guard lock(mutex_);
      for (auto& [stream, queue] : queues_) {
        if (queue.head != nullptr) waiting.push_back(&queue);
      }
    } catch (...) {  // out of memory: another drain will find them
    }
    for (Queue* queue : waiting) drain_queue(*queue, *access);
    forget_empty_queues();
  }
  finish_drain();
}

// Bounds the table for a program that keeps making new streams.
void EventClock::forget_empty_queues() noexcept {
  const std::lock_guard lock(mutex_);
  if (queues_.size() <= kIdleQueues) return;
  last_queue_ = nullptr;
  for (auto it = queues_.begin(); it != queues_.end();) {
    it = it->second.head == nullptr ? queues_.erase(it) : std::next(it);
  }
}

void EventClock::forget_if_empty(std::uintptr_t queue) noexcept {
  const std::lock_guard lock(mutex_);
  if (queues_.size() <= kIdleQueues) return;
  const auto found = queues_.find(queue);
  if (found == queues_.end() || found->second.head != nullptr) return;
  last_queue_ = nullptr;
  queues_.erase(found);
}

void EventClock::drain_queue(Queue& queue, const driver::EventAccess& access) noexcept {
  while (!lost() && !driver::is_blocked() && read_batch(queue, access)) {
  }
  const std::lock_guard lock(mutex_);
  queue.next_try = queue.size + kFirstTry;
}

// True if the whole batch was finished, so the next may be too.
bool EventClock::read_batch(Queue& queue, const driver::EventAccess& access) noexcept {
  std::array<Sample*, kBatch> batch{};
  std::size_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    for (Sample* s = queue.head; s != nullptr && count < kBatch; s = s->next) batch[count++] = s;
  }
  std::size_t finished = 0;
  CudaTimeline::Held anchor;
  for (; finished < count; ++finished) {
    Sample& sample = *batch[finished];
    float ms = 0.0F;
    const CUresult status = access.elapsed(ms, sample.start, sample.end);
    if (status == CUDA_ERROR_NOT_READY) break;
    if (status == CUDA_SUCCESS) {
      sample.device_ms = static_cast<double>(ms);
      if (timeline_.mark(sample, anchor, access)) continue;
      pop_finished(queue, batch.data(), finished + 1);
      return false;
    }
    const Error error = driver::error_of(status, "cuEventElapsedTime");
    if (driver::is_blocked() || context_is_gone(error)) {
      pop_finished(queue, batch.data(), finished);
      note_failure(error);
      return false;
    }
    try {
      sample.error = std::make_shared<const Error>(error);
    } catch (...) {  // out of memory: failed without a reason
    }
    sample.device_ms = -1.0;
  }
  pop_finished(queue, batch.data(), finished);
  return finished == kBatch;
}

void EventClock::pop_finished(Queue& queue, Sample* const* batch, std::size_t count) noexcept {
  if (count == 0) return;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < count; ++i) {
      Sample& sample = *batch[i];
      queue.head = sample.next;
      free_.push_back({sample.start, sample.end});
      sample.start = sample.end = nullptr;
    }
    if (queue.head == nullptr) queue.tail = nullptr;
    queue.size -= count;
  }
  for (std::size_t i = 0; i < count; ++i) {
    batch[i]->finish(batch[i]->device_ms < 0.0 ? SampleStatus::kFailed : SampleStatus::kDone);
  }
  deliver(batch, count);
  for (std::size_t i = 0; i < count; ++i) drop_reference(batch[i]);
}

device::Work EventClock::work_left(std::vector<std::uintptr_t>& threads) {
  std::vector<CUevent> ends;
  bool is_open = false;
  {
    const std::lock_guard lock(mutex_);
    if (queues_.empty() && made_ == 0) return device::Work::kUnseen;
    std::size_t closed = free_.size() + static_cast<std::size_t>(kept_.load());
    for (const auto& [stream, queue] : queues_) {
      threads.push_back(queue.thread);
      closed += queue.size;
      if (queue.tail != nullptr) ends.push_back(queue.tail->end);
    }
    is_open = made_ > closed;
  }
  const auto access = try_access();
  if (!access) return device::Work::kUnseen;
  const driver::RelaxedCapture relaxed(table_);
  for (const CUevent end : ends) {
    const CUresult status = access->query(end);
    if (status == CUDA_ERROR_NOT_READY) return device::Work::kUnderWay;
    if (status == CUDA_SUCCESS) continue;
    note_failure(driver::error_of(status, "cuEventQuery"));
    return device::Work::kUnseen;
  }
  if (is_open) return device::Work::kScopeOpen;
  return threads.empty() ? device::Work::kUnseen : device::Work::kNone;
}

CUevent EventClock::pending_end(const Sample& sample) noexcept {
  const std::lock_guard lock(mutex_);
  return sample.load_status() == SampleStatus::kPending ? sample.end : nullptr;
}

void EventClock::note_failure(const Error& error) noexcept {
  if (context_is_gone(error)) {
    const std::lock_guard lock(mutex_);
    try {
      if (!loss_) loss_ = std::make_shared<const Error>(error);
    } catch (...) {  // out of memory: what is pending fails without a reason
    }
    lost_.store(true, std::memory_order_release);
  }
  if (lost()) timeline_.lose();
  if (draining_.try_lock()) finish_drain();
}

// Only the draining thread takes samples out of queues, so none is lost.
void EventClock::finish_drain() noexcept {
  try {
    if (driver::is_blocked()) {
      fail_pending(driver::blocked_error());
    } else if (lost()) {
      fail_pending(loss_ ? *loss_ : Error(driver::ErrorKind::kGone, "the CUDA context is gone"));
    }
  } catch (...) {  // out of memory: the next drain tries again
  }
  draining_.unlock();
}

void EventClock::fail_pending(const Error& error) noexcept {
  Sample* failed = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [stream, queue] : queues_) {
      if (queue.tail == nullptr) continue;
      queue.tail->next = failed;
      failed = queue.head;
      queue.head = queue.tail = nullptr;
      queue.size = 0;
    }
    if (lost()) {
      free_.clear();
      dead_.clear();
      made_ = 0;
    }
    for (Sample* s = failed; s != nullptr; s = s->next) s->start = s->end = nullptr;
  }
  while (failed != nullptr) {
    Sample* next = failed->next;
    failed->fail(error);
    deliver(failed);
    drop_reference(failed);
    failed = next;
  }
}

void EventClock::append_tails(std::vector<SampleRef>& tails) {
  const std::lock_guard lock(mutex_);
  for (const auto& [stream, queue] : queues_) {
    if (queue.tail == nullptr) continue;
    add_reference(queue.tail);
    tails.emplace_back(queue.tail);
  }
}

void EventClock::append_counts(std::vector<device::PendingCount>& counts) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t epoch = statistics::epoch();
  for (const auto& [stream, queue] : queues_) {
    for (const Sample* s = queue.head; s != nullptr; s = s->next) {
      if (!s->counted || s->epoch != epoch) continue;
      if (counts.empty() || counts.back().path != s->path) counts.push_back({s->path, 0});
      ++counts.back().count;
    }
  }
}

std::size_t EventClock::destroy_idle() noexcept {
  const auto access = try_access();
  destroy_dead();
  EventPair pair;
  std::size_t idle = 0;
  for (; pop_free(pair); ++idle) {
    if (!access) continue;
    access->destroy(pair.start);
    access->destroy(pair.end);
  }
  const std::lock_guard lock(mutex_);
  made_ -= std::min(made_, idle);
  return made_ + holders_.load();
}

OwnEvent::OwnEvent(EventClock& clock, unsigned flags)
    : clock_(clock), handle_(clock.make_event(flags)) {
  clock.hold();
}

OwnEvent::~OwnEvent() {
  clock_.destroy_later(handle_);
  clock_.let_go();
}

}  // namespace gpuprof::timing
