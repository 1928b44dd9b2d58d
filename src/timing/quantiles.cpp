#include "timing/quantiles.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace gpuprof::timing {
namespace {

// Milliseconds from a picosecond to three million years; what lies outside counts as the outermost.
constexpr int kLowestExponent = -30;
constexpr int kHighestExponent = 56;
constexpr std::size_t kBinsPerOctave = 64;
constexpr std::size_t kBins =
    static_cast<std::size_t>(kHighestExponent - kLowestExponent) * kBinsPerOctave;

constexpr int kMantissaBits = 52;
constexpr int kBinBits = 6;
constexpr std::int64_t kExponentBias = 1023;

// The exponent and the first bits of the mantissa, as they stand in the number, are the bin.
std::size_t bin_of(double value) noexcept {
  if (!(value > 0.0)) return 0;
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const auto place = static_cast<std::int64_t>(bits >> (kMantissaBits - kBinBits));
  const std::int64_t lowest = (kExponentBias + kLowestExponent) << kBinBits;
  return static_cast<std::size_t>(
      std::clamp<std::int64_t>(place - lowest, 0, static_cast<std::int64_t>(kBins) - 1));
}

// The middle of a bin.
double value_of(std::size_t bin) noexcept {
  const double mantissa =
      1.0 + (static_cast<double>(bin % kBinsPerOctave) + 0.5) / static_cast<double>(kBinsPerOctave);
  return std::ldexp(mantissa, static_cast<int>(bin / kBinsPerOctave) + kLowestExponent);
}

}  // namespace

void Quantiles::add(double value) {
  if (bins_.empty() && kept_.size() < kExact) {
    kept_.push_back(value);
  } else {
    if (bins_.empty()) to_bins();
    ++bins_[bin_of(value)];
  }
  ++count_;
}

void Quantiles::add(double value, std::uint64_t weight) {
  if (bins_.empty()) to_bins();
  bins_[bin_of(value)] += weight;
  count_ += weight;
}

void Quantiles::add(const Quantiles& others) {
  if (exact() && others.exact() && kept_.size() + others.kept_.size() <= kExact) {
    kept_.insert(kept_.end(), others.kept_.begin(), others.kept_.end());
  } else {
    if (exact()) to_bins();
    for (const double value : others.kept_) ++bins_[bin_of(value)];
    for (std::size_t bin = 0; bin < others.bins_.size(); ++bin) bins_[bin] += others.bins_[bin];
  }
  count_ += others.count_;
}

void Quantiles::to_bins() {
  bins_.assign(kBins, 0);
  for (const double value : kept_) ++bins_[bin_of(value)];
  kept_ = {};
}

double Quantiles::at(double q) {
  if (count_ == 0) return std::numeric_limits<double>::quiet_NaN();
  const double rank = q * static_cast<double>(count_ - 1);
  const auto low = static_cast<std::uint64_t>(rank);
  const auto [below, above] = neighbours(low);
  return below + (above - below) * (rank - static_cast<double>(low));
}

std::pair<double, double> Quantiles::neighbours(std::uint64_t rank) {
  const std::uint64_t next = std::min(rank + 1, count_ - 1);
  if (bins_.empty()) {
    const auto below = kept_.begin() + static_cast<std::ptrdiff_t>(rank);
    std::nth_element(kept_.begin(), below, kept_.end());
    return {*below, next == rank ? *below : *std::min_element(below + 1, kept_.end())};
  }
  std::size_t bin = 0;
  std::uint64_t seen = bins_[0];
  while (seen <= rank) seen += bins_[++bin];
  const double below = value_of(bin);
  while (seen <= next) seen += bins_[++bin];
  return {below, value_of(bin)};
}

BinCounts Quantiles::bin_counts() const {
  if (count_ == 0) return {};
  Quantiles all = *this;
  if (all.exact()) all.to_bins();
  BinCounts found;
  for (std::size_t bin = 0; bin < kBins; ++bin) {
    if (all.bins_[bin] != 0) found.emplace_back(static_cast<std::uint32_t>(bin), all.bins_[bin]);
  }
  return found;
}

}  // namespace gpuprof::timing
