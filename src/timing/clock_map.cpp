#include "timing/clock_map.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gpuprof::timing {

using timeline::HostMoment;
using timeline::Placement;

namespace {

constexpr double kNsPerMs = 1e6;

// The anchors whose brackets bound the next one: the newest, as long as the drift may be taken for
// steady. It was steady to 0.1 ppm over a minute.
constexpr std::size_t kWindow = 32;
constexpr double kWindowNs = 8e9;
constexpr double kUnsteadiness = 1e-7;

// The step of GPU clocks, and what rounding adds to it.
constexpr double kTick = 32.0;
constexpr double kSlack = 2 * kTick;

// No two clocks of a computer differ by more: Linux slews its own by up to 500 ppm.
constexpr double kLargestDrift = 6e-4;

// Half the step of 32-bit floats there: what the rounding of a distance may have taken, in ns.
double rounding(double ms) noexcept {
  const auto size = static_cast<float>(std::abs(ms));
  const float next = std::nextafter(size, std::numeric_limits<float>::infinity());
  return (static_cast<double>(next) - static_cast<double>(size)) / 2 * kNsPerMs;
}

double mix(double left, double right, double share) noexcept {
  return left + (right - left) * share;
}

}  // namespace

void ClockMap::add(float elapsed_ms, HostNanoseconds before, HostNanoseconds after) {
  if (anchors_.empty()) base_ = before;
  Anchor anchor{};
  anchor.before = static_cast<double>(before - base_);
  anchor.after = static_cast<double>(after - base_);
  if (!anchors_.empty()) {
    // The GPU's clock may not have gone on between two events, and lines need two moments.
    const double elapsed = std::max(static_cast<double>(elapsed_ms) * kNsPerMs, kTick);
    anchor.gpu = anchors_.back().gpu + elapsed;
    anchor.link_error = rounding(static_cast<double>(elapsed_ms));
    if (elapsed > kWindowNs) in_window_ = 0;
  }
  settle(anchor);
  anchors_.push_back(anchor);
  in_window_ = std::min(in_window_ + 1, kWindow);
}

// Decides where in its bracket a new anchor lies.
void ClockMap::settle(Anchor& anchor) noexcept {
  while (in_window_ > 0 && anchors_[anchors_.size() - in_window_].gpu < anchor.gpu - kWindowNs) {
    --in_window_;
  }
  const Bounds carried = carried_to(anchor.gpu);
  double low = std::max(anchor.before, carried.low);
  double high = std::min(anchor.after, carried.high);
  if (low > high) {  // the drift has changed: earlier brackets are useless
    in_window_ = 0;
    low = anchor.before;
    high = anchor.after;
  }
  // Many brackets may agree on less than the narrowest of them, but only while the drift is as
  // steady as assumed. So no error is stated that is smaller than that one's.
  double narrowest = anchor.after - anchor.before;
  for (std::size_t i = anchors_.size() - in_window_; i < anchors_.size(); ++i) {
    narrowest = std::min(narrowest, anchors_[i].after - anchors_[i].before);
  }
  anchor.at = (low + high) / 2;
  anchor.error = std::max(high - low, narrowest) / 2;
}

// The bounds at `gpu`, after all anchors, of every straight line through the window's brackets.
ClockMap::Bounds ClockMap::carried_to(double gpu) const noexcept {
  Bounds bounds{-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  const std::size_t begin = anchors_.size() - in_window_;
  const auto slack = [&](const Anchor& anchor) {
    return kSlack + (gpu - anchor.gpu) * kUnsteadiness;
  };
  for (std::size_t j = begin; j < anchors_.size(); ++j) {
    const Anchor& near = anchors_[j];
    const double ahead = gpu - near.gpu;
    const double low = near.before - slack(near);
    const double high = near.after + slack(near);
    bounds.low = std::max(bounds.low, low + ahead * (1 - kLargestDrift));
    bounds.high = std::min(bounds.high, high + ahead * (1 + kLargestDrift));
    for (std::size_t i = begin; i < j; ++i) {
      const Anchor& far = anchors_[i];
      const double reach = ahead / (near.gpu - far.gpu);
      bounds.low = std::max(bounds.low, low + (low - far.after - slack(far)) * reach);
      bounds.high = std::min(bounds.high, high + (high - far.before + slack(far)) * reach);
    }
  }
  return bounds;
}

std::size_t ClockMap::first_not_before(double gpu) const noexcept {
  const auto found =
      std::lower_bound(anchors_.begin(), anchors_.end(), gpu,
                       [](const Anchor& anchor, double moment) { return anchor.gpu < moment; });
  return static_cast<std::size_t>(found - anchors_.begin());
}

std::uint32_t ClockMap::nearest(std::uint32_t number, double ms) const noexcept {
  const double gpu = anchors_[number - first_].gpu + ms * kNsPerMs;
  std::size_t index = std::min(first_not_before(gpu), anchors_.size() - 1);
  if (index > 0 && gpu - anchors_[index - 1].gpu < std::abs(anchors_[index].gpu - gpu)) --index;
  return first_ + static_cast<std::uint32_t>(index);
}

Placement ClockMap::place(std::uint32_t number, double ms, HostMoment& moment) const noexcept {
  if (number < first_ || number > newest()) return Placement::kLost;
  const double gpu = anchors_[number - first_].gpu + ms * kNsPerMs;
  if (anchors_.size() < 2 || gpu > anchors_.back().gpu) return Placement::kNotYet;
  const std::size_t right = std::max<std::size_t>(first_not_before(gpu), 1);
  const Point found = gpu < anchors_.front().gpu ? before_oldest(gpu)
                                                 : between(right, gpu, number - first_ < right);
  moment.at = base_ + static_cast<HostNanoseconds>(std::llround(found.at));
  moment.error = static_cast<HostNanoseconds>(std::ceil(found.error + rounding(ms) + kTick));
  return Placement::kPlaced;
}

// `gpu` on the line between an anchor and the one on its left. It was measured from one of the two
// or from beyond it, which says where the rounding of their distance counts.
ClockMap::Point ClockMap::between(std::size_t right_index, double gpu,
                                  bool from_left) const noexcept {
  const Anchor& left = anchors_[right_index - 1];
  const Anchor& right = anchors_[right_index];
  const double share = (gpu - left.gpu) / (right.gpu - left.gpu);
  return {mix(left.at, right.at, share),
          mix(left.error, right.error, share) +
              std::min(gpu - left.gpu, right.gpu - gpu) * kUnsteadiness +
              right.link_error * (from_left ? share : 1 - share)};
}

ClockMap::Point ClockMap::before_oldest(double gpu) const noexcept {
  const Anchor& oldest = anchors_.front();
  const Anchor& newest = anchors_.back();
  const double span = newest.gpu - oldest.gpu;
  const double distance = oldest.gpu - gpu;
  double drift = (newest.at - oldest.at) / span - 1;
  double uncertainty = (oldest.error + newest.error) / span + kUnsteadiness;
  if (uncertainty > kLargestDrift) {
    drift = 0;
    uncertainty = kLargestDrift;
  }
  return {oldest.at - distance * (1 + drift), oldest.error + distance * uncertainty};
}

void ClockMap::forget_before(HostNanoseconds moment) noexcept {
  const auto limit = static_cast<double>(moment - base_);
  while (anchors_.size() > 1 && anchors_.front().after < limit) {
    anchors_.pop_front();
    ++first_;
  }
  in_window_ = std::min(in_window_, anchors_.size());
}

void ClockMap::clear() noexcept {
  first_ += static_cast<std::uint32_t>(anchors_.size());
  anchors_.clear();
  in_window_ = 0;
}

}  // namespace gpuprof::timing
