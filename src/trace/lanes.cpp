#include "trace/lanes.hpp"

#include <algorithm>

namespace gpuprof::trace {

bool Lane::add(Time begin, Time& end, std::uint16_t depth, std::uint64_t& line, Time slack) {
  if (outermost_.empty() || begin >= outermost_.back().end) {
    push({begin, end, depth, line}, begin);
    return true;
  }
  if (add_inside(begin, end)) return true;
  // The first slice that ends after this one begins: the two must not cross.
  const auto inside =
      std::partition_point(outermost_.begin(), outermost_.end(),
                           [begin](const Slice& slice) { return slice.end <= begin; });
  if (end <= inside->begin && end > begin) {  // late, in a gap
    outermost_.insert(inside, {begin, end, depth, line});
    return true;
  }
  if (inside->begin < begin) return false;
  const Time last = outermost_.back().end;
  if (last > end) {
    if (last - end > slack) return false;
    end = last;
  }
  if (inside->begin == begin && last == end) line = inside->line;
  outermost_.erase(inside, outermost_.end());
  push({begin, end, depth, line}, last);
  return true;
}

bool Lane::add_inside(Time begin, Time end) {
  while (open_.size() > 1 && open_.back().end <= begin) open_.pop_back();
  OpenSlice& around = open_.back();
  if (begin < around.filled || end > around.end) return false;
  around.filled = end;
  open_.push_back({end, begin});
  return true;
}

void Lane::push(const Slice& slice, Time filled) {
  open_.assign(1, {slice.end, filled});
  if (!outermost_.empty()) {
    Slice& last = outermost_.back();
    if (slice.depth != kUnknownDepth && last.depth == slice.depth) {
      last.end = slice.end;
      return;
    }
  }
  if (outermost_.size() >= kMost) {
    const auto half = outermost_.begin() + kMost / 2;
    outermost_.front().end = (half - 1)->end;
    outermost_.front().depth = kUnknownDepth;
    outermost_.erase(outermost_.begin() + 1, half);
  }
  outermost_.push_back(slice);
}

}  // namespace gpuprof::trace
