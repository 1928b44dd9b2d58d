// When a track was busy: the union of many intervals, and the gaps between them.
//
// Bounded: past kMaxIntervals, the smallest gaps are closed for good and only their length is
// remembered, so that the largest gaps stay exact; an interval that comes later inside a closed gap
// adds nothing. Times are nanoseconds. Not safe to share between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpuprof::trace::reading {

struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

class Coverage {
 public:
  static constexpr std::size_t kMaxIntervals = 8192;

  Coverage() = default;
  explicit Coverage(std::size_t most) : most_(most) {}

  void add(Interval interval);

  // These put the intervals in order first.
  std::int64_t busy();
  Interval extent();
  std::size_t gap_count();
  std::vector<Interval> largest_gaps(std::size_t most);

 private:
  void unite();
  void close_smallest(std::size_t left);

  std::size_t most_ = kMaxIntervals;
  std::vector<Interval> intervals_;
  std::int64_t closed_ = 0;  // nanoseconds of closed gaps
  std::size_t closed_count_ = 0;
  bool united_ = true;
};

}  // namespace gpuprof::trace::reading
