// What is known of a stream's queue, and whether there is surely room in it.
//
// A queue has about a thousand entries, and takes host functions only 56 times: those that follow
// one another count once. A call that finds it full waits in the driver: for ever if the GPU waits
// for something that the caller holds up. The driver does not tell how full a queue is, and entries
// of others are not counted. So there is room where nobody had the time to launch 56 host functions
// since what is known to be complete was queued. Anything else costs the caller his lock, which is
// next to nothing where it comes back at once.
//
// Where it does not, because a thread is busy, a queue that moves is taken not to stay full, and
// one that was empty a millisecond ago not to be full yet. There is room, too, where all that was
// queued more than a millisecond ago is known to be complete, or where something of ours has
// completed within the last millisecond; in both cases only with few entries of ours in the queue,
// fewer than 56, and while the calls return at once. More of ours are fine where several of ours
// have just completed while the caller held the lock all the time: then there is not a function
// that wants the lock between any two of them.
//
// What it gets wrong: beside a busy thread, a queue that others fill with 56 host functions between
// two calls of ours, and that stops moving at that very moment, is taken to have room; that calls
// on a full queue are slow makes this rare.
//
// Plain data and no driver call; the caller has a lock.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "timing/clock.hpp"

namespace gpuprof::timing {

class QueueProgress {
 public:
  static constexpr HostNanoseconds kLookEvery = 200'000;
  static constexpr HostNanoseconds kRecent = 1'000'000;
  static constexpr HostNanoseconds kLookSoon = 50'000;  // where that may give room
  static constexpr std::uint64_t kFewEntries = 48;
  static constexpr std::uint64_t kMostEntries = 500;
  static constexpr HostNanoseconds kFresh = 80'000;  // 56 host functions take longer to launch
  static constexpr std::uint64_t kFlow = 6;          // spans that complete while the lock is held
  static constexpr HostNanoseconds kSlowEntry = 8'000;
  static constexpr HostNanoseconds kWatchAgain = 5'000'000;
  static constexpr HostNanoseconds kWatch = 2'000'000;
  static constexpr HostNanoseconds kWatchDeep = 200'000;

  // Before a call that queues `entries`, by a caller whose lock may be slow to come back. Whether
  // the driver should be asked first.
  bool add(HostNanoseconds now, std::uint64_t entries, bool is_lock_slow) noexcept {
    if (total_ - last_level() >= kFewEntries / 4) note_level(now);
    total_ += entries;
    now_ = now;
    is_lock_slow_ = is_lock_slow;
    if (!has_room()) flows_until_ = 0;  // without the lock, others may queue functions in between
    return now - looked_ >= (has_room() || !helped_ ? kLookEvery : kLookSoon);
  }
  // Whether there is room, by what was known at the last look.
  [[nodiscard]] bool has_room() const noexcept { return moves_ && entries() < limit(); }
  // Adds up to `most` entries that are yet to be queued: where there is room, no more than that.
  // Returns how many.
  std::uint64_t reserve(std::uint64_t most) noexcept {
    const std::uint64_t reserved = has_room() ? std::min(most, limit() - entries()) : most;
    total_ += reserved;
    return reserved;
  }
  // Counts what is queued besides the calls.
  void note_mark() noexcept { total_ += 2; }
  // Whether the stream may be asked with the lock held: one that is stuck is not to be touched.
  [[nodiscard]] bool may_be_asked() const noexcept { return moves_; }

  // Whether calls are to be timed, for note_call().
  [[nodiscard]] bool is_deep() const noexcept { return looked_ - cleared_ >= kRecent; }
  void note_call(HostNanoseconds took) noexcept {
    ++calls_;
    spent_ += took;
  }

  // What was queued before `queued` is complete: so many spans more.
  void note_complete(HostNanoseconds queued, std::uint64_t spans = 1) noexcept {
    completed_ += spans;
    if (queued <= cleared_) return;
    cleared_ = queued;
    has_progressed_ = true;
    advance();
  }
  // Begins a look, so that other threads do not look as well.
  void begin_look(HostNanoseconds now) noexcept {
    before_ = looked_;
    looked_ = now_ = now;
  }
  // Ends it: the stream was idle, or not.
  void end_look(bool idle) noexcept;

  // For how long to look again and again now, with the lock held all the time. A GPU with that much
  // in its queue does not run dry meanwhile; with less, the call would come late.
  [[nodiscard]] HostNanoseconds watch_time() const noexcept {
    if (!is_lock_slow_ || entries() < 2 * kFlow || now_ - unwatched_ < kWatchAgain) return 0;
    return entries() < kMostEntries ? kWatch : kWatchDeep;
  }
  [[nodiscard]] std::uint64_t completed() const noexcept { return completed_; }
  // Whether that has shown that the stream does not wait for the lock: as many have completed, or
  // all. Then there is room for more.
  bool has_flowed(std::uint64_t completed) noexcept {
    if (completed_ < completed && entries() > 0) return false;
    flows_until_ = total_ + kMostEntries;
    return true;
  }
  void note_no_flow() noexcept { unwatched_ = now_; }

 private:
  static constexpr HostNanoseconds kNever = std::numeric_limits<HostNanoseconds>::min() / 2;

  // How much had been queued at some time.
  struct Level {
    HostNanoseconds time;
    std::uint64_t total;
  };

  // The most entries of ours that the queue may hold.
  [[nodiscard]] std::uint64_t entries() const noexcept { return total_ - cleared_total_; }
  [[nodiscard]] std::uint64_t limit() const noexcept {
    if (now_ - cleared_ < kFresh) return kMostEntries;
    if (!is_lock_slow_) return 0;
    return total_ < flows_until_ ? kMostEntries : kFewEntries;
  }
  [[nodiscard]] std::uint64_t last_level() const noexcept {
    return level_count_ == 0 ? cleared_total_ : levels_[level_count_ - 1].total;
  }
  void advance() noexcept;
  void note_level(HostNanoseconds now) noexcept;

  HostNanoseconds now_ = 0;  // at the last call or look
  HostNanoseconds looked_ = kNever;
  HostNanoseconds before_ = kNever;   // the look before
  HostNanoseconds cleared_ = kNever;  // what was queued before is complete
  HostNanoseconds moved_ = kNever;    // something has completed after this
  std::uint64_t total_ = 0;
  std::uint64_t cleared_total_ = 0;  // at `cleared_` or earlier
  std::uint64_t completed_ = 0;
  std::array<Level, 16> levels_{};  // at earlier calls, after `cleared_`
  std::size_t level_count_ = 0;
  HostNanoseconds spent_ = 0;  // in `calls_` calls since the last look
  HostNanoseconds calls_ = 0;
  bool has_progressed_ = false;  // since the last look
  bool moves_ = true;            // nothing is known: the first call asks
  bool helped_ = true;           // there was room after the last look
  bool is_lock_slow_ = false;
  std::uint64_t flows_until_ = 0;
  HostNanoseconds unwatched_ = kNever;
};

}  // namespace gpuprof::timing
