// Which slices fit on one track: those that nest or are disjoint.
//
// Viewers drop a slice that partly overlaps another on its track. A lane remembers enough of its
// slices to check one more: the outermost ones, and of the last of these the inner ones that may
// still get children. Slices may come in the order of their ends (as scopes note them), of their
// begins (as graph replays do), or first the one and then the other (a replay that is read while it
// runs). May reject a slice that fits; never accepts one that does not. Memory is bounded:
// neighbours of one depth are joined, because no open slice can contain only the second; without
// depths the older half is joined at kMost slices. Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trace/event.hpp"

namespace gpuprof::trace {

class Lane {
 public:
  using Time = driver::HostNanoseconds;
  static constexpr std::size_t kMost = 4096;

  // Adds [begin, end] if it fits. A slice that ends up to `slack` before what it contains is
  // extended: `end` grows. `line` is the position of its line in the file. If a slice inside is
  // equal, `line` becomes that slice's position, because viewers show the first of two equal slices
  // in a file as the outer one.
  bool add(Time begin, Time& end, std::uint16_t depth, std::uint64_t& line, Time slack = 0);

  [[nodiscard]] std::size_t size() const noexcept { return outermost_.size() + open_.size(); }

 private:
  struct Slice {
    Time begin;
    Time end;
    std::uint16_t depth;
    std::uint64_t line;  // of the first of joined neighbours
  };
  struct OpenSlice {  // a slice that may get further children
    Time end;
    Time filled;  // up to here it may have some already
  };
  bool add_inside(Time begin, Time end);
  void push(const Slice& slice, Time filled);

  std::vector<Slice> outermost_;  // disjoint, in order
  std::vector<OpenSlice> open_;   // the last of them and what is inside it, outermost first
};

}  // namespace gpuprof::trace
