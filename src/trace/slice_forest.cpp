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
  std::vector<Slice> open;  // what is around the current slice
  std::size_t kept = 0;
  for (const Slice& slice : slices) {
    leave(open, slice);
    if (!open.empty()) {
      tell_inside(open.back(), slice);
    } else if (last && !slice.loose) {
      visitor_.outside(slice);
    }
    const bool keep = open.empty() || slice.end > newest;
    open.push_back(slice);
    if (!keep) continue;
    Slice settled = slice;  // kept is never ahead of it
    if (!is_settled(settled)) settled.covered = settled.end - settled.begin;
    slices[kept++] = settled;
  }
  slices.resize(kept);
}

// Takes off what is not around `slice`.
void SliceForest::leave(std::vector<Slice>& open, const Slice& slice) {
  for (; !open.empty() && open.back().end < slice.end; open.pop_back()) {
    const Slice& before = open.back();
    if (before.end <= slice.begin) continue;
    if (before.loose || slice.loose) {
      approximate_ = true;
    } else if (!is_settled(before) || !is_settled(slice)) {
      visitor_.crossing(before, slice);
    }
  }
  // What ends where the slice begins is around it only if the slice has no length.
  const bool point = slice.begin == slice.end;
  while (!open.empty() && !point && open.back().end <= slice.begin) open.pop_back();
}

void SliceForest::tell_inside(const Slice& outer, const Slice& slice) {
  if (is_settled(outer) && is_settled(slice)) return;
  if (outer.loose) {
    approximate_ = true;
    return;
  }
  visitor_.inside(outer, is_settled(slice) ? slice.covered : slice.end - slice.begin);
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
