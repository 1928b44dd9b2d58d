#include "trace/lanes.hpp"

#include <algorithm>

namespace gpuprof::trace {

bool Lane::add(Time begin, Time end, std::uint16_t depth) {
  return add_stretched(begin, end, depth, 0);
}

bool Lane::add_stretched(Time begin, Time& end, std::uint16_t depth, Time slack) {
  if (outermost_.empty() || begin >= outermost_.back().end) {
    push({begin, end, depth});
    return true;
  }
  // The first slice that ends after this one begins: the two must not cross.
  const auto inside =
      std::partition_point(outermost_.begin(), outermost_.end(),
                           [begin](const Slice& slice) { return slice.end <= begin; });
  if (end <= inside->begin && end > begin) {  // late, in a gap
    outermost_.insert(inside, {begin, end, depth});
    return true;
  }
  if (inside->begin < begin) return false;
  const Time last = outermost_.back().end;
  if (last > end) {
    if (last - end > slack) return false;
    end = last;
  }
  outermost_.erase(inside, outermost_.end());
  push({begin, end, depth});
  return true;
}

void Lane::push(const Slice& slice) {
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
