// What is known of a stream's queue, and whether there is surely room in it.
//
// A queue has about a thousand entries, and a call that finds it full waits in the driver: for ever
// if the GPU waits for something that the caller holds up. The driver does not tell how full a
// queue is. But one that moves cannot stay full, and one that was empty a millisecond ago is not
// full yet. So there is room where all that was queued more than a millisecond ago is known to be
// complete, or where something of ours has completed within the last millisecond; in both cases
// only with few entries of ours in the queue, and while the calls return at once. How few: between
// ours there may be others, and a host function takes many times the room of a record. More of ours
// are fine where the stream has worked off a number of them since the last look while no call let
// the lock go: then it does not wait for the lock.
//
// What it gets wrong: entries of others are not counted. A queue that is nearly full of others'
// work and stops moving at that very moment may be taken to have room; that calls on a full queue
// are slow makes this rare.
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
  static constexpr HostNanoseconds kLookSoon = 50'000;  // with more than a few entries
  static constexpr HostNanoseconds kOwnCall = 1'000;    // what a call of ours takes, at least
  static constexpr std::uint64_t kFewEntries = 64;
  static constexpr std::uint64_t kMostEntries = 500;
  static constexpr std::uint64_t kFlow = 16;  // entries that are worked off in about kRecent
  static constexpr HostNanoseconds kSlowEntry = 8'000;

  // Before a call that queues `entries`. Whether the driver should be asked first.
  bool add(HostNanoseconds now, std::uint64_t entries) noexcept {
    if (total_ - last_level() >= kFewEntries / 4) note_level(now);
    total_ += entries;
    ++own_calls_;
    const HostNanoseconds since = now - looked_;
    if (this->entries() < kFewEntries) return since >= kLookEvery;
    if (!flows_ || this->entries() >= limit() / 2) return since >= kLookSoon;
    return since >= kLookEvery || since - own_calls_ * kOwnCall >= kLookSoon;
  }
  // Whether there is room, by what was known at the last look.
  [[nodiscard]] bool has_room() const noexcept { return moves_ && entries() < limit(); }
  // Where there is room: adds up to `most` entries that are yet to be queued, so many by a call.
  // Returns how many were added.
  std::uint64_t reserve(std::uint64_t most, std::uint64_t by_a_call) noexcept {
    const std::uint64_t reserved = std::min(most, limit() - entries());
    total_ += reserved;
    own_calls_ += static_cast<HostNanoseconds>(reserved / by_a_call);
    return reserved;
  }
  // Whether the stream may be asked with the lock held: one that is stuck is not to be touched.
  [[nodiscard]] bool may_be_asked() const noexcept { return moves_; }
  // A call lets the lock go, so that whatever waits for it goes on.
  void note_let_go() noexcept { let_go_ = true; }

  // Whether calls are to be timed, for note_call().
  [[nodiscard]] bool is_deep() const noexcept { return looked_ - cleared_ >= kRecent; }
  void note_call(HostNanoseconds took) noexcept {
    ++calls_;
    spent_ += took;
  }

  // What was queued before `queued` is complete.
  void note_complete(HostNanoseconds queued) noexcept { complete_ = std::max(complete_, queued); }
  // Begins a look, so that other threads do not look as well.
  void begin_look(HostNanoseconds now) noexcept {
    own_calls_ = 0;
    before_ = looked_;
    looked_ = now;
  }
  // Ends it: the stream was idle, or not.
  void end_look(bool idle) noexcept;

 private:
  static constexpr HostNanoseconds kNever = std::numeric_limits<HostNanoseconds>::min() / 2;

  // How much had been queued at some time.
  struct Level {
    HostNanoseconds time;
    std::uint64_t total;
  };

  // The most entries of ours that the queue may hold.
  [[nodiscard]] std::uint64_t entries() const noexcept { return total_ - cleared_total_; }
  [[nodiscard]] std::uint64_t limit() const noexcept { return flows_ ? kMostEntries : kFewEntries; }
  [[nodiscard]] std::uint64_t last_level() const noexcept {
    return level_count_ == 0 ? cleared_total_ : levels_[level_count_ - 1].total;
  }
  void advance() noexcept;
  void note_level(HostNanoseconds now) noexcept;

  HostNanoseconds looked_ = kNever;
  HostNanoseconds before_ = kNever;    // the look before
  HostNanoseconds complete_ = kNever;  // as reported; may be later than `cleared_` between looks
  HostNanoseconds cleared_ = kNever;   // what was queued before is complete
  HostNanoseconds moved_ = kNever;     // something has completed after this
  std::uint64_t total_ = 0;
  std::uint64_t cleared_total_ = 0;  // at `cleared_` or earlier
  std::array<Level, 16> levels_{};   // at earlier calls, after `cleared_`
  std::size_t level_count_ = 0;
  HostNanoseconds spent_ = 0;  // in `calls_` calls since the last look
  HostNanoseconds calls_ = 0;
  HostNanoseconds own_calls_ = 0;        // since the last look
  bool moves_ = true;                    // nothing is known: the first call asks
  HostNanoseconds flow_since_ = kNever;  // since when is counted what is worked off
  std::uint64_t flow_total_ = 0;
  bool flows_ = false;
  bool let_go_ = false;  // since then
};

}  // namespace gpuprof::timing
