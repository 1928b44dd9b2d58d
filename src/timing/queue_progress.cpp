#include "timing/queue_progress.hpp"

#include <algorithm>

namespace gpuprof::timing {

void QueueProgress::end_look(bool idle) noexcept {
  const bool is_slow = calls_ > 0 && spent_ >= calls_ * kSlowEntry;
  calls_ = spent_ = 0;
  if (idle) {
    cleared_ = moved_ = looked_;
    cleared_total_ = total_;
    level_count_ = 0;
  } else if (has_progressed_) {
    moved_ = before_;
  }
  has_progressed_ = false;
  moves_ = looked_ - cleared_ < kRecent || (looked_ - moved_ < kRecent && !is_slow);
  helped_ = has_room();
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
