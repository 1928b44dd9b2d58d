// Which slices may stand on one track: those that nest or are disjoint.
//
// Viewers drop a slice that crosses another of its track. A lane remembers enough of what it holds
// to say whether one more slice fits: the outermost slices so far, and of the last of them the
// innermost ones that are still open to the right. So slices may come in the order of their ends,
// as they are noted, or in that of their beginnings, as they are replayed, or in the second after
// some of the first, as a replay does that is read while it runs. A lane may refuse a slice that
// would fit; it never takes one that does not. Memory is bounded: neighbours of one
// depth are joined, because no slice around the second but not the first can be open still;
// without depths the older half is joined once there are kMost. Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "driver/host_clock.hpp"

namespace gpuprof::trace {

class Lane {
 public:
  using Time = driver::HostNanoseconds;
  static constexpr std::uint16_t kUnknownDepth = 0xFFFF;
  static constexpr std::size_t kMost = 4096;

  // Takes [begin, end] in if it fits. One that ends up to `slack` before what it surrounds is made
  // longer (`end` is raised). `line` is where its line in the file begins; if it is just as long as
  // a slice that it surrounds, `line` becomes that one's, because viewers show the first of two
  // equal slices in a file as the outer one.
  bool add(Time begin, Time& end, std::uint16_t depth, std::uint64_t& line, Time slack = 0);

  [[nodiscard]] std::size_t size() const noexcept { return outermost_.size() + open_.size(); }

 private:
  struct Slice {
    Time begin;
    Time end;
    std::uint16_t depth;
    std::uint64_t line;  // of the first of neighbours that were joined
  };
  struct OpenSlice {  // a slice that may get further children
    Time end;
    Time filled;  // up to here it has some, or may
  };
  bool add_inside(Time begin, Time end);
  void push(const Slice& slice, Time filled);

  std::vector<Slice> outermost_;  // disjoint, in order
  std::vector<OpenSlice> open_;   // the last of them and what is inside it, outermost first
};

}  // namespace gpuprof::trace
