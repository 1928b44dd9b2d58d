#include "trace/coverage.hpp"

#include <algorithm>

namespace gpuprof::trace::reading {
namespace {

bool earlier(const Interval& a, const Interval& b) noexcept { return a.begin < b.begin; }
std::int64_t length(const Interval& interval) noexcept { return interval.end - interval.begin; }
bool longer(const Interval& a, const Interval& b) noexcept { return length(a) > length(b); }

}  // namespace

void Coverage::add(Interval interval) {
  if (!intervals_.empty() && interval.begin >= intervals_.back().begin &&
      interval.begin <= intervals_.back().end) {
    intervals_.back().end = std::max(intervals_.back().end, interval.end);
    return;
  }
  united_ = united_ && (intervals_.empty() || interval.begin > intervals_.back().end);
  intervals_.push_back(interval);
  if (intervals_.size() < 2 * most_) return;
  unite();
  if (intervals_.size() > most_) close_smallest(most_ / 2);
}

std::int64_t Coverage::busy() {
  unite();
  std::int64_t sum = -closed_;
  for (const Interval& interval : intervals_) sum += length(interval);
  return sum;
}

Interval Coverage::extent() {
  unite();
  if (intervals_.empty()) return {};
  return {intervals_.front().begin, intervals_.back().end};
}

std::size_t Coverage::gap_count() {
  unite();
  return closed_count_ + (intervals_.empty() ? 0 : intervals_.size() - 1);
}

std::vector<Interval> Coverage::largest_gaps(std::size_t most) {
  unite();
  std::vector<Interval> gaps;
  for (std::size_t at = 1; at < intervals_.size(); ++at) {
    gaps.push_back({intervals_[at - 1].end, intervals_[at].begin});
  }
  most = std::min(most, gaps.size());
  std::partial_sort(gaps.begin(), gaps.begin() + static_cast<std::ptrdiff_t>(most), gaps.end(),
                    longer);
  gaps.resize(most);
  return gaps;
}

void Coverage::unite() {
  if (united_) return;
  united_ = true;
  std::sort(intervals_.begin(), intervals_.end(), earlier);
  std::size_t last = 0;
  for (std::size_t at = 1; at < intervals_.size(); ++at) {
    if (intervals_[at].begin <= intervals_[last].end) {
      intervals_[last].end = std::max(intervals_[last].end, intervals_[at].end);
    } else {
      intervals_[++last] = intervals_[at];
    }
  }
  intervals_.resize(last + 1);
}

// Leaves so many gaps, the largest.
void Coverage::close_smallest(std::size_t left) {
  const std::vector<Interval> largest = largest_gaps(left);
  std::vector<Interval> united{{intervals_.front().begin, 0}};
  std::vector<Interval> gaps = largest;
  std::sort(gaps.begin(), gaps.end(), earlier);
  std::int64_t open = 0;
  for (const Interval& gap : gaps) {
    united.back().end = gap.begin;
    united.push_back({gap.end, 0});
    open += length(gap);
  }
  united.back().end = intervals_.back().end;
  std::int64_t idle = length({intervals_.front().begin, intervals_.back().end});
  for (const Interval& interval : intervals_) idle -= length(interval);
  closed_ += idle - open;
  closed_count_ += intervals_.size() - 1 - gaps.size();
  intervals_ = std::move(united);
}

}  // namespace gpuprof::trace::reading
