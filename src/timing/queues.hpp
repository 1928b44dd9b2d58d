// Whether a call that queues something on a stream may have to wait, so that a caller who holds the
// interpreter lock lets it go first.
//
// The rule is QueueProgress, kept here for each stream: for 256 of them, the newest; what is
// forgotten is asked again. Nothing has to be said when a stream is destroyed, or its handle given
// out again: the state is about time, and holds for the new stream too. Any thread. Nothing waits.
#pragma once

#include <cstdint>

#include "timing/clock.hpp"

namespace gpuprof::timing {

class EventClock;
struct Sample;

// Where something is queued. `clock` is that of an object which the call belongs to, and whose
// context may be gone: then the stream is not touched. Without one the stream is the caller's, and
// `ordinal` is the device of a default stream on a thread without a context.
struct QueuePlace {
  std::uintptr_t stream = 0;
  int ordinal = 0;
  EventClock* clock = nullptr;
  // No record of ours to see progress by: the call leaves a sample, which tells as much, or it may
  // end an interval, which the record would lengthen.
  bool no_mark = false;
};

// One call. For the stack of one function.
class QueueCall {
 public:
  // A call that queues so many entries.
  QueueCall(const QueuePlace& place, unsigned entries) noexcept;

  // Whether there is surely room for it. Asks the driver at most once in 50 to 200
  // microseconds and stream, and only where the last answer was yes: a stream that is stuck is not
  // to be touched with the lock held. Without room, and where the lock is slow to come back, this
  // may look for up to two milliseconds whether the stream moves while the lock is held; in vain
  // once in five milliseconds.
  [[nodiscard]] bool has_room() noexcept { return room_ && !is_due_ ? true : find_room(); }
  // Where there was none, and without the lock: asks the driver anew, for the calls to come.
  void look() noexcept;
  // After it.
  void over() const noexcept {
    if (timed_) note_duration();
  }

  // Around taking the lock back, where it was let go: notes whether that takes long.
  void before_lock() noexcept {
    if (!hasty_) begun_ = monotonic_now();
  }
  void after_lock() const noexcept {
    if (!hasty_) note_lock_wait(monotonic_now() - begun_);
  }
  static void note_lock_wait(HostNanoseconds waited) noexcept;

 private:
  void begin(unsigned entries) noexcept;
  bool ask(bool may_wait) noexcept;  // false: nothing was learnt
  bool find_room() noexcept;
  bool ask_if_idle() noexcept;
  void watch() noexcept;
  [[nodiscard]] static bool is_lock_slow() noexcept;
  void note_duration() const noexcept;
  // When this thread last recorded something of ours that the stream may not have got to.
  [[nodiscard]] HostNanoseconds newest_record(EventClock& clock) const noexcept;

  const QueuePlace& place_;
  HostNanoseconds begun_ = 0;
  bool is_due_ = false;
  bool wants_mark_ = false;  // a record to see progress by, which may have to wait
  bool room_ = true;
  bool may_ask_ = true;
  bool timed_ = false;
  bool hasty_ = false;  // as the calls just before it, without a look at anything
};

// Notes that a span of the calling thread has just begun on its stream. A mark right after that
// would lengthen what the span measures.
void note_queue_begin(const Sample& sample) noexcept;

// Notes that the sample, and all that was queued before it, is complete; so many spans of ours.
void note_queue_complete(const Sample& sample, std::uint64_t spans) noexcept;

}  // namespace gpuprof::timing
