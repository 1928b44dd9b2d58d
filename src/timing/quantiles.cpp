#include "timing/quantiles.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gpuprof::timing {
namespace {

// Milliseconds from a nanosecond to eleven days; what lies outside counts as the outermost bin.
constexpr double kLowest = 1e-6;
constexpr double kHighest = 1e9;
constexpr double kGrowth = 1.01;

const double kLogGrowth = std::log(kGrowth);
const std::size_t kBins = static_cast<std::size_t>(std::log(kHighest / kLowest) / kLogGrowth) + 2;

std::size_t bin_of(double value) noexcept {
  if (!(value > kLowest)) return 0;
  const double bin = std::log(value / kLowest) / kLogGrowth + 1.0;
  return std::min(static_cast<std::size_t>(bin), kBins - 1);
}

// The middle of a bin, as the ratio to either border is the same.
double value_of(std::size_t bin) noexcept {
  if (bin == 0) return 0.0;
  return kLowest * std::exp((static_cast<double>(bin) - 0.5) * kLogGrowth);
}

}  // namespace

void Quantiles::add(double value) {
  if (bins_.empty() && kept_.size() < kExact) {
    kept_.push_back(value);
    sorted_ = false;
  } else {
    if (bins_.empty()) to_bins();
    add_to_bins(value);
  }
  ++count_;
}

void Quantiles::to_bins() {
  bins_.assign(kBins, 0);
  for (const double value : kept_) add_to_bins(value);
  kept_ = {};
}

void Quantiles::add_to_bins(double value) { ++bins_[bin_of(value)]; }

double Quantiles::at(double q) const {
  if (count_ == 0) return std::numeric_limits<double>::quiet_NaN();
  const double rank = q * static_cast<double>(count_ - 1);
  if (bins_.empty()) {
    if (!sorted_) std::sort(kept_.begin(), kept_.end());
    sorted_ = true;
    const auto low = static_cast<std::size_t>(rank);
    const auto high = std::min(low + 1, kept_.size() - 1);
    const double fraction = rank - static_cast<double>(low);
    return kept_[low] + (kept_[high] - kept_[low]) * fraction;
  }
  const auto wanted = static_cast<std::uint64_t>(rank);
  std::uint64_t seen = 0;
  std::size_t bin = 0;
  for (; bin < bins_.size(); ++bin) {
    seen += bins_[bin];
    if (seen > wanted) break;
  }
  return value_of(bin);
}

}  // namespace gpuprof::timing
