// The statistics of each path and clock.
//
// Each of up to 32 threads adds to rows of its own, under a lock that only rows(), reset() and
// forks take besides, and that is held over no driver call. Samples arrive in batches as they
// finish; one that was entered before the last reset() is ignored. Any thread.
//
// Where a budget leaves visits out, a sample of weight w stands for w visits, and how many there
// were is known exactly. The total is then that of the samples of weight 1, and for the other
// visits their number times the weighted mean (Hajek's estimator). Its error is that of the
// decisions to measure, each of which may have been for several samples, as in cluster sampling.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "timing/quantiles.hpp"
#include "timing/sample.hpp"
#include "timing/work.hpp"

namespace gpuprof::timing {

// A series of milliseconds.
struct Summary {
  std::uint64_t count = 0;
  std::uint64_t measured = 0;  // of them
  double margin = 0.0;         // of the total: half of its 95 % interval; nan: not known
  double total = 0.0;
  double mean = 0.0;
  double min = 0.0;
  double p50 = 0.0;
  double p90 = 0.0;
  double p99 = 0.0;
  double max = 0.0;
  double first = 0.0;
  BinCounts bins;  // where they are asked for
};

struct Row {
  const Path* path;
  ClockId clock;
  bool has_device;  // whether `device` is set
  Summary device;
  Summary host;
  std::uint64_t dropped;
  std::uint64_t failed;
  std::uint64_t skipped;
  WorkSums work{};
  MemorySums memory{};
  std::uint64_t pending = 0;  // samples that wait for the GPU; see device::rows_with_pending()
};

namespace statistics {

// The epoch of samples that are entered now.
std::uint64_t epoch() noexcept;

// Adds samples of any final status. Those not `counted` or of an earlier epoch are ignored; one
// whose body raised only counts as failed.
void add(const Sample* const* samples, std::size_t count) noexcept;

// Adds visits that were left out since the last reset: how many ended well, and how many raised.
void add_left_out(const Path& path, ClockId clock, std::uint64_t count,
                  std::uint64_t raised) noexcept;

// Adds what the allocators did during one measured sample, which add() may get earlier or later:
// the memory is known at the exit, the GPU time when the GPU has come to it.
void add_memory(const Sample& sample, const MemoryUse& use) noexcept;

// The sums of all threads' rows, in the order of their paths' first entries, each as it was at some
// moment of the call. with_bins: and their bins.
std::vector<Row> rows(bool with_bins = false);

// Deletes all rows and begins a new epoch.
void reset() noexcept;

}  // namespace statistics
}  // namespace gpuprof::timing
