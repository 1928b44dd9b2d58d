// What all samples of a path add up to.
//
// One registry for the process, behind one lock that is never held over a driver call. Samples
// arrive in batches as they become known; one that was entered before the last reset() is left out.
// Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "timing/quantiles.hpp"
#include "timing/sample.hpp"

namespace gpuprof::timing {

// A series of milliseconds.
struct Summary {
  std::uint64_t count = 0;
  double total = 0.0;
  double mean = 0.0;
  double min = 0.0;
  double p50 = 0.0;
  double p90 = 0.0;
  double p99 = 0.0;
  double max = 0.0;
  double first = 0.0;
};

struct Row {
  const Path* path;
  ClockId clock;
  bool has_device;  // `device` means something
  Summary device;
  Summary host;
  std::uint64_t dropped;
  std::uint64_t failed;
  std::uint64_t skipped;
};

namespace statistics {

// The epoch that a sample entered now belongs to.
std::uint64_t epoch() noexcept;

// Counts samples of any final status. Those not `counted` or from an earlier epoch are ignored; one
// whose body raised is counted as failed only.
void add(const Sample* const* samples, std::size_t count) noexcept;

// A copy of all rows, in the order in which their paths were first entered.
std::vector<Row> rows();

// Forgets everything and begins a new epoch.
void reset() noexcept;

}  // namespace statistics
}  // namespace gpuprof::timing
