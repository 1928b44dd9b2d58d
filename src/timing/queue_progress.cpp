#include "timing/queue_progress.hpp"

#include <algorithm>

namespace gpuprof::timing {

void QueueProgress::end_look(bool idle) noexcept {
  const bool is_slow = calls_ > 0 && spent_ >= calls_ * kSlowEntry;
  calls_ = spent_ = 0;
  if (idle) {
    complete_ = cleared_ = moved_ = looked_;
    cleared_total_ = total_;
    level_count_ = 0;
  } else if (complete_ > cleared_) {
    moved_ = before_;
    cleared_ = complete_;
    advance();
  }
  moves_ = looked_ - cleared_ < kRecent || (looked_ - moved_ < kRecent && !is_slow);
  const HostNanoseconds window = looked_ - flow_since_;
  const std::uint64_t worked_off = cleared_total_ - flow_total_;
  if (worked_off < kFlow && window < kRecent) return;
  flows_ = worked_off >= kFlow && window < 2 * kRecent && !let_go_ && !is_slow;
  flow_since_ = looked_;
  flow_total_ = cleared_total_;
  let_go_ = false;
}

// Counts the entries anew from the newest level that is known to have been worked off.
void QueueProgress::advance() noexcept {
  std::size_t done = 0;
  while (done < level_count_ && levels_[done].time <= cleared_) ++done;
  if (done == 0) return;
  cleared_total_ = levels_[done - 1].total;
  std::copy(levels_.begin() + static_cast<std::ptrdiff_t>(done),
            levels_.begin() + static_cast<std::ptrdiff_t>(level_count_), levels_.begin());
  level_count_ -= done;
}

// Where all places are taken, every second level goes: the deeper the queue, the coarser.
void QueueProgress::note_level(HostNanoseconds now) noexcept {
  if (level_count_ == levels_.size()) {
    for (std::size_t i = 0; i < levels_.size() / 2; ++i) levels_[i] = levels_[2 * i];
    level_count_ /= 2;
  }
  levels_[level_count_++] = {now, total_};
}

}  // namespace gpuprof::timing
