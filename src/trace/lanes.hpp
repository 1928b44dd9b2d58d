// Which slices may stand on one track: those that nest or are disjoint.
//
// Viewers drop a slice that crosses another of its track. A lane remembers what it holds as the
// outermost slices so far and says whether one more fits. Slices come in the order of their ends,
// or nearly; one that comes too late to tell does not fit, so the answer is always safe. Memory is
// bounded: neighbours of one depth are joined, because no slice around the second but not the first
// can be open still; without depths the older half is joined once there are kMost. Not thread safe.
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

  // Takes [begin, end] in if it fits.
  bool add(Time begin, Time end, std::uint16_t depth);

  // The same, but a slice that ends up to `slack` before what it surrounds is made longer:
  // `end` is raised.
  bool add_stretched(Time begin, Time& end, std::uint16_t depth, Time slack);

  [[nodiscard]] std::size_t size() const noexcept { return outermost_.size(); }

 private:
  struct Slice {
    Time begin;
    Time end;
    std::uint16_t depth;
  };
  void push(const Slice& slice);

  std::vector<Slice> outermost_;  // disjoint, in order
};

}  // namespace gpuprof::trace
