#include "trace/slice_forest.hpp"

#include <algorithm>

namespace gpuprof::trace::reading {
namespace {

bool outer_first(const Slice& a, const Slice& b) noexcept {
  return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
}

bool is_settled(const Slice& slice) noexcept { return slice.covered >= 0; }

}  // namespace

void SliceForest::add(std::size_t track, const Slice& slice) {
  if (track >= tracks_.size()) tracks_.resize(track + 1);
  tracks_[track].push_back(slice);
  if (++waiting_ > most_) settle_all();
}

void SliceForest::finish() {
  for (Slices& slices : tracks_) {
    settle(slices, true);
    slices = {};
  }
  waiting_ = 0;
}

void SliceForest::settle_all() {
  waiting_ = 0;
  for (Slices& slices : tracks_) {
    settle(slices, false);
    waiting_ += slices.size();
  }
  if (waiting_ <= most_ / 2) return;
  const std::size_t groups_of = waiting_ / (most_ / 8 + 1) + 1;
  waiting_ = 0;
  for (Slices& slices : tracks_) {
    put_together(slices, groups_of);
    slices.shrink_to_fit();
    waiting_ += slices.size();
  }
}

// Finds the parents of what has come since the last time. Keeps the slices without one, which may
// get one yet, and those around the newest moment, which may get more inside.
void SliceForest::settle(Slices& slices, bool last) {
  if (slices.empty()) return;
  if (!std::is_sorted(slices.begin(), slices.end(), outer_first)) {
    std::sort(slices.begin(), slices.end(), outer_first);
  }
  const std::int64_t newest = slices.back().begin;
  std::vector<std::size_t> open;  // what is around the current slice
  std::vector<bool> keep(slices.size(), false);
  for (std::size_t at = 0; at < slices.size(); ++at) {
    Slice& slice = slices[at];
    while (!open.empty() && slices[open.back()].end < slice.end) {
      const Slice& before = slices[open.back()];
      const bool crosses = before.end > slice.begin;
      const bool known = is_settled(before) && is_settled(slice);
      if (crosses && (before.loose || slice.loose)) {
        approximate_ = true;
      } else if (crosses && !known) {
        visitor_.crossing(before, slice);
      }
      open.pop_back();
    }
    const bool point = slice.begin == slice.end;
    while (!open.empty() && slices[open.back()].end <= slice.begin &&
           !(point && slices[open.back()].end == slice.begin)) {
      open.pop_back();
    }
    keep[at] = open.empty() || slice.end > newest;
    if (!open.empty()) {
      const Slice& outer = slices[open.back()];
      if (outer.loose) {
        approximate_ = approximate_ || !is_settled(slice);
      } else if (!is_settled(outer) || !is_settled(slice)) {
        visitor_.inside(outer, slice.covered < 0 ? slice.end - slice.begin : slice.covered);
      }
    } else if (last && !slice.loose) {
      visitor_.outside(slice);
    }
    open.push_back(at);
  }
  if (last) return;
  std::size_t kept = 0;
  for (std::size_t at = 0; at < slices.size(); ++at) {
    if (!keep[at]) continue;
    slices[kept] = slices[at];
    if (!is_settled(slices[kept])) slices[kept].covered = slices[kept].end - slices[kept].begin;
    ++kept;
  }
  slices.resize(kept);
}

// Makes one of each group of neighbours that do not overlap. Not of the newest quarter: what is
// around those is most likely still to come, and may begin between any two.
void SliceForest::put_together(Slices& slices, std::size_t groups_of) {
  const std::size_t newest = slices.size() - slices.size() / 4;
  std::size_t kept = 0;
  std::size_t members = 0;
  for (std::size_t at = 0; at < slices.size(); ++at) {
    const Slice slice = slices[at];
    const bool joins =
        at < newest && kept > 0 && members < groups_of && slices[kept - 1].end <= slice.begin;
    if (joins) {
      Slice& group = slices[kept - 1];
      group.end = slice.end;
      group.covered += slice.covered;
      group.loose = true;
      ++members;
    } else {
      slices[kept++] = slice;
      members = 1;
    }
  }
  slices.resize(kept);
}

}  // namespace gpuprof::trace::reading
