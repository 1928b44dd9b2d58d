// Quantiles of a stream of positive numbers, in bounded memory.
//
// A quantile is linear between order statistics. Up to kExact values are kept; more are counted in
// bins, 64 for each power of two as in an HDR histogram (Tene, 2012): an order statistic is then
// the middle of its bin, within 0.8 %. Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gpuprof::timing {

// Bins that have values, each with how many; the lowest first. Bin b begins at
// 2^(b / 64 - 30) * (1 + (b % 64) / 64), whole divisions, and ends where the next one begins.
using BinCounts = std::vector<std::pair<std::uint32_t, std::uint64_t>>;

class Quantiles {
 public:
  static constexpr std::size_t kExact = 4096;

  void add(double value);
  // A value that stands for `weight` values; counted in bins from then on.
  void add(double value, std::uint64_t weight);
  void add(const Quantiles& others);

  // The value at rank `q`, between 0 and 1; nan if nothing was added. Moves the kept values about.
  [[nodiscard]] double at(double q);

  // All values as counts of bins, from which quantiles of several of these can be made.
  [[nodiscard]] BinCounts bin_counts() const;

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] bool exact() const noexcept { return bins_.empty(); }

 private:
  // The values at this rank, from 0, and at the next one, if there is one.
  [[nodiscard]] std::pair<double, double> neighbours(std::uint64_t rank);
  void to_bins();

  std::uint64_t count_ = 0;
  std::vector<double> kept_;
  std::vector<std::uint64_t> bins_;
};

}  // namespace gpuprof::timing
