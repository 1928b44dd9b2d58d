#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "driver/cuda_thread_state.hpp"
#include "driver/process.hpp"
#include "timing/cuda_capture.hpp"
#include "timing/cuda_contexts.hpp"
#include "timing/cuda_event_clock.hpp"
#include "timing/device.hpp"
#include "timing/gate.hpp"
#include "timing/path.hpp"
#include "timing/queue_progress.hpp"
#include "timing/queues.hpp"

namespace gpuprof::timing {

using driver::Table;

namespace {

// A default stream is one of each context.
struct QueueKey {
  std::uintptr_t queue = 0;
  const void* context = nullptr;

  bool operator==(const QueueKey& other) const noexcept {
    return queue == other.queue && context == other.context;
  }
};

constexpr std::uint64_t kFewTicks = 50'000;  // 10 to 50 microseconds

// A cheap clock; 0 where there is none, or where the time is a test's.
std::uint64_t read_ticks() noexcept {
#if defined(__x86_64__)
  if (host_clock.load(std::memory_order_relaxed) == &monotonic_now) return __rdtsc();
#endif
  return 0;
}

struct Known {
  QueueKey key;
  HostNanoseconds used = 0;  // 0: a free place
  std::uint64_t ticks = 0;   // at `used`
  QueueProgress progress;

  // The time, which may be some microseconds old: reading the clock takes as long as all the rest
  // of a call that has room, and a graph launch is short.
  HostNanoseconds use() noexcept {
    const std::uint64_t now = read_ticks();
    if (now != 0 && used != 0 && now - ticks < kFewTicks) return used;
    ticks = now;
    return used = host_now();
  }
};

// A few streams that share a lock. In a forked child, where the lock may be held for ever, no call
// gets here.
struct alignas(64) Shelf {
  SpinFlag mutex;
  std::array<Known, 4> places;

  Known* find(const QueueKey& key) noexcept {
    const auto found = std::find_if(places.begin(), places.end(), [&](const Known& known) {
      return known.used != 0 && known.key == key;
    });
    return found != places.end() ? &*found : nullptr;
  }
  Known& find_or_add(const QueueKey& key) noexcept {
    if (Known* found = find(key); found != nullptr) return *found;
    Known& oldest = *std::min_element(
        places.begin(), places.end(),
        [](const Known& one, const Known& other) { return one.used < other.used; });
    oldest = Known{};
    oldest.key = key;
    return oldest;
  }
};

constexpr std::size_t kShelves = 64;

// Without a record of ours on a busy stream for so long, none would show soon that it moves.
constexpr HostNanoseconds kMarkEvery = QueueProgress::kRecent / 2;

Shelf& shelf_of(const QueueKey& key) noexcept {
  static auto& shelves = *new std::array<Shelf, kShelves>;
  const std::uintptr_t bits = key.queue ^ (reinterpret_cast<std::uintptr_t>(key.context) << 1U);
  return shelves[(bits * 0x9E3779B97F4A7C15ULL) >> 58U];
}
const bool shelves_fork_hook = (shelf_of({}), true);  // a child may not make them

constexpr std::uintptr_t kLegacyStream = 1;  // the other name of stream 0

std::uintptr_t queue_of(std::uintptr_t stream) noexcept {
  return stream == kLegacyStream ? 0 : contexts::queue_of(stream);
}

void* context_of(const QueuePlace& place) noexcept {
  if (!contexts::is_default_stream(place.stream)) return nullptr;
  if (place.clock != nullptr) return place.clock->context();
  CUcontext context = nullptr;
  if (const Table* table = driver::loaded_or_null()) table->cuCtxGetCurrent(&context);
  return context;
}

QueueKey key_of(const QueuePlace& place) noexcept {
  return {queue_of(place.stream), context_of(place)};
}

// What is known for a thread's next calls on a stream: that there is room, reserved for them, or
// that there is none. With it, a call takes no lock and looks nothing up. It lasts for a few ticks.
// Nothing is known where there are no ticks.
struct Reserved {
  std::uintptr_t stream = 0;
  const void* context = nullptr;  // of a default stream
  std::uint64_t ticks = 0;
  std::uint64_t entries = 0;
  bool room = false;

  bool take(const QueuePlace& at, std::uint64_t count) noexcept {
    if (entries < count || at.stream != stream) return false;
    if (read_ticks() - ticks >= (room ? kFewTicks : 4 * kFewTicks)) return false;
    if (contexts::is_default_stream(stream) && context_of(at) != context) return false;
    entries -= count;
    return true;
  }
};
thread_local Reserved reserved;

constexpr std::uint64_t kReservedAtOnce = 32;

// Whether other threads keep the caller's lock for long once it is let go: as seen at two calls
// that did so, for a while. One may have waited for the system, which let other processes run.
constexpr HostNanoseconds kSlowLock = 2'000'000;
constexpr HostNanoseconds kLockIsSlow = 1'000'000'000;
constexpr HostNanoseconds kLookForMoves = 500'000;
std::atomic<HostNanoseconds> slow_lock_until{0};
std::atomic<HostNanoseconds> newest_slow_lock{-10 * kLockIsSlow};

// The newest span that this thread has begun.
struct Begun {
  std::uintptr_t stream = 0;
  HostNanoseconds time = 0;
};
thread_local Begun newest_begun;

enum class Answer { kUnknown, kIdle, kBusy };

// Asks the driver, and reads what it has finished of the stream.
Answer ask_driver(const Table& table, const QueuePlace& place, EventClock& clock) {
  const bool is_default = contexts::is_default_stream(place.stream);  // others were asked before
  if (is_default && captures::is_capturing(table, place.stream)) return Answer::kUnknown;
  CUresult status = CUDA_SUCCESS;
  {
    const driver::RelaxedCapture relaxed(table);
    status = table.cuStreamQuery(contexts::as_stream(place.stream));
  }
  if (status == CUDA_SUCCESS) return Answer::kIdle;
  if (status != CUDA_ERROR_NOT_READY) return Answer::kUnknown;  // the call meets it again
  clock.drain(contexts::queue_of(place.stream));
  return Answer::kBusy;
}

// Records a span without a name, which nobody sees: it tells when the stream has got here.
void record_mark(const QueuePlace& place) {
  const SampleRef mark(make_sample());
  mark->clock = kCudaClock;
  mark->counted = false;
  mark->path = &root_path();
  mark->stream = place.stream;
  device::begin(*mark.get(), /*in_capture=*/false, place.ordinal);
  if (mark->load_status() == SampleStatus::kOpen) device::end(*mark.get());
}

}  // namespace

QueueCall::QueueCall(const QueuePlace& place, unsigned entries) noexcept : place_(place) {
  if (!reserved.take(place, entries)) {
    begin(entries);
  } else if (!reserved.room) {
    room_ = may_ask_ = false;
    hasty_ = true;
  }
}

void QueueCall::begin(unsigned entries) noexcept {
  reserved.entries = 0;
  if (driver::blocked.load(std::memory_order_relaxed) != 0) return;  // nothing will be queued
  const QueueKey key = key_of(place_);
  Shelf& shelf = shelf_of(key);
  const std::lock_guard lock(shelf.mutex);
  Known& known = shelf.find_or_add(key);
  begun_ = known.use();
  const bool is_slow = is_lock_slow();
  is_due_ = known.progress.add(begun_, entries, is_slow);
  room_ = known.progress.has_room();
  may_ask_ = known.progress.may_be_asked();
  timed_ = known.progress.is_deep();
  if (timed_) begun_ = host_now();
  if (is_due_ || (timed_ && room_) || known.ticks == 0 || (!room_ && is_slow)) return;
  const std::uint64_t most = room_ ? kReservedAtOnce : 2 * kReservedAtOnce * entries;
  reserved = {place_.stream, key.context, known.ticks, known.progress.reserve(most), room_};
}

void QueueCall::look() noexcept {
  if (hasty_) return;
  if (wants_mark_ || is_due_) static_cast<void>(ask(/*may_wait=*/true));
  // Coming back will take long. What is seen to move now may be watched then.
  const HostNanoseconds until = host_now() + kLookForMoves;
  while (!may_ask_ && is_lock_slow() && (begun_ = host_now()) < until && ask(/*may_wait=*/true)) {
  }
  begun_ = host_now();
}

// A lock that came back at once says nothing: a busy thread needs some time to take it.
void QueueCall::note_lock_wait(HostNanoseconds waited) noexcept {
  if (waited < kSlowLock) return;
  const HostNanoseconds now = monotonic_now();
  const HostNanoseconds before = newest_slow_lock.exchange(now, std::memory_order_relaxed);
  if (now - before < 2 * kLockIsSlow)
    slow_lock_until.store(now + kLockIsSlow, std::memory_order_relaxed);
}

bool QueueCall::is_lock_slow() noexcept {
  HostNanoseconds until = slow_lock_until.load(std::memory_order_relaxed);
  if (until == 0) return false;
  if (monotonic_now() < until) return true;
  slow_lock_until.compare_exchange_strong(until, 0, std::memory_order_relaxed);  // asked no more
  return false;
}

bool QueueCall::find_room() noexcept {
  if (!may_ask_) return room_;
  if (ask_if_idle()) return true;
  if (is_due_) ask(/*may_wait=*/false);
  if (!room_) watch();
  if (timed_) begun_ = host_now();  // the questions are not the call's time
  return room_;
}

// The one question that costs next to nothing. Where nothing will be queued, there is room, too: in
// a capture the call adds a node, and in a context that is lost it fails.
bool QueueCall::ask_if_idle() noexcept {
  bool queues = true;
  try {
    const Table* table = driver::in_use_or_null();
    if (table == nullptr || contexts::is_default_stream(place_.stream)) return false;
    queues = (place_.clock == nullptr || place_.clock->check_alive()) &&
             !captures::is_capturing(*table, place_.stream);
    if (queues) {
      const driver::RelaxedCapture relaxed(*table);
      if (table->cuStreamQuery(contexts::as_stream(place_.stream)) != CUDA_SUCCESS) return false;
    }
  } catch (...) {  // the call itself meets the error
    return false;
  }
  if (queues) {
    const QueueKey key = key_of(place_);
    Shelf& shelf = shelf_of(key);
    const std::lock_guard lock(shelf.mutex);
    QueueProgress& progress = shelf.find_or_add(key).progress;
    progress.begin_look(begun_);
    progress.end_look(/*idle=*/true);
  }
  reserved.entries = 0;
  is_due_ = timed_ = false;
  return room_ = true;
}

// Others run Python while this call is without the lock, and hand it back after some milliseconds.
// That the GPU works off a number of spans while this thread holds the lock shows that it does not
// wait for it.
void QueueCall::watch() noexcept {
  const QueueKey key = key_of(place_);
  Shelf& shelf = shelf_of(key);
  const auto progress = [&](auto&& use) {
    const std::lock_guard lock(shelf.mutex);
    return use(shelf.find_or_add(key).progress);
  };
  const auto time = progress([](QueueProgress& known) { return known.watch_time(); });
  if (time == 0 || !ask(/*may_wait=*/false)) return;  // what was complete before does not count
  const std::uint64_t enough =
      progress([](QueueProgress& known) { return known.completed(); }) + QueueProgress::kFlow;
  const auto flows = [&](QueueProgress& known) { return known.has_flowed(enough); };
  bool flowed = false;
  for (const HostNanoseconds until = monotonic_now() + time; !flowed && monotonic_now() < until;) {
    begun_ = host_now();
    if (!ask(/*may_wait=*/false)) return;
    flowed = progress(flows);
  }
  if (!flowed) progress([](QueueProgress& known) { known.note_no_flow(); });
  room_ = progress([](QueueProgress& known) { return known.has_room(); });
}

bool QueueCall::ask(bool may_wait) noexcept {
  is_due_ = false;
  const QueueKey key = key_of(place_);
  Shelf& shelf = shelf_of(key);
  try {
    const Table* table = driver::in_use_or_null();
    if (table == nullptr) return false;
    EventClock* clock = place_.clock;
    if (clock != nullptr && !clock->check_alive()) return false;
    const bool is_default = contexts::is_default_stream(place_.stream);
    if (!is_default && captures::is_capturing(*table, place_.stream)) return false;
    if (clock == nullptr) clock = contexts::find(*table, place_.stream, place_.ordinal).clock;
    {
      const std::lock_guard lock(shelf.mutex);
      shelf.find_or_add(key).progress.begin_look(begun_);
    }
    const driver::CurrentContext current(*table, is_default ? clock->context() : nullptr);
    const Answer answer = ask_driver(*table, place_, *clock);
    if (answer == Answer::kUnknown) return false;
    {
      const std::lock_guard lock(shelf.mutex);
      QueueProgress& progress = shelf.find_or_add(key).progress;
      progress.end_look(answer == Answer::kIdle);
      room_ = progress.has_room();
      may_ask_ = progress.may_be_asked();
      timed_ = progress.is_deep();
    }
    wants_mark_ = answer == Answer::kBusy && !place_.no_mark && !any_gate_closed() &&
                  begun_ - newest_record(*clock) >= kMarkEvery;
    if (wants_mark_ && (room_ || may_wait)) {
      record_mark(place_);
      const std::lock_guard lock(shelf.mutex);
      shelf.find_or_add(key).progress.note_mark();
    }
    wants_mark_ = wants_mark_ && !room_ && !may_wait;
    return true;
  } catch (...) {  // the call itself meets the error
    return false;
  }
}

HostNanoseconds QueueCall::newest_record(EventClock& clock) const noexcept {
  const HostNanoseconds pending = clock.newest_pending(contexts::queue_of(place_.stream));
  return newest_begun.stream == place_.stream ? std::max(pending, newest_begun.time) : pending;
}

void QueueCall::note_duration() const noexcept {
  const HostNanoseconds took = host_now() - begun_;
  const QueueKey key = key_of(place_);
  Shelf& shelf = shelf_of(key);
  const std::lock_guard lock(shelf.mutex);
  if (Known* known = shelf.find(key)) known->progress.note_call(took);
}

void note_queue_begin(const Sample& sample) noexcept {
  newest_begun = {sample.stream, sample.host_begin};
}

void note_queue_complete(const Sample& sample, std::uint64_t spans) noexcept {
  const bool is_default = contexts::is_default_stream(sample.stream);
  const QueueKey key{sample.queue == kLegacyStream ? 0 : sample.queue,
                     is_default ? sample.events->context() : nullptr};
  Shelf& shelf = shelf_of(key);
  const std::lock_guard lock(shelf.mutex);
  if (Known* known = shelf.find(key)) known->progress.note_complete(sample.host_end, spans);
}

}  // namespace gpuprof::timing
