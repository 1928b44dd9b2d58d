#include "timing/budget.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gpuprof::timing {
namespace {

constexpr HostNanoseconds kFirstWindow = 100'000'000;
constexpr HostNanoseconds kLongestWindow = 1'000'000'000;
constexpr std::uint32_t kLargest = 1U << 30U;
constexpr double kAhead = 0.08;       // of a window's allowance
constexpr double kLeastShare = 0.25;  // of the budget, while what was spent too much is paid back
constexpr double kMostOwed = 4.0;     // windows' budgets
constexpr double kWeighsAs = 8.0;     // measured visits: what was known before of the cost of one

double as_double(std::uint64_t count) noexcept { return static_cast<double>(count); }

}  // namespace

void Budget::set_share(double share, HostNanoseconds now) {
  share_ = level_ = share;
  owed_ns_ = 0.0;
  window_ = kFirstWindow;
  for (Visits* each : all_) each->one_in = 1;
  begin_window(now);
}

void Budget::begin_anew() noexcept {
  for (Visits* each : all_) {
    each->first = Visits::kFirst;
    each->gap = 0;
  }
}

// splitmix64 (Steele, Lea and Flood, 2014); above 0 and at most 1.
double Budget::uniform() noexcept {
  random_ += 0x9E3779B97F4A7C15U;
  std::uint64_t mixed = random_;
  mixed = (mixed ^ (mixed >> 30U)) * 0xBF58476D1CE4E5B9U;
  mixed = (mixed ^ (mixed >> 27U)) * 0x94D049BB133111EBU;
  mixed ^= mixed >> 31U;
  return (as_double(mixed >> 11U) + 1.0) * 0x1p-53;
}

bool Budget::take_first(Visits& visits) {
  if (!visits.known) {
    all_.push_back(&visits);
    visits.known = true;
    visits.limit_ns = kAhead / 2 * level_ * as_double(static_cast<std::uint64_t>(window_));
  }
  if (--visits.first == 0) set_one_in(visits, visits.one_in);
  return true;
}

std::uint32_t Budget::measure(Visits& visits) {
  if (is_first(visits)) return 1;
  const std::uint32_t weight = visits.one_in;
  set_one_in(visits, weight);
  return weight;
}

// Draws the gap to the next measured visit. Since gaps have no memory, a change of k may do that at
// any time.
void Budget::set_one_in(Visits& visits, std::uint32_t one_in) noexcept {
  visits.one_in = one_in;
  if (visits.first != 0 || one_in == 1) {
    visits.gap = 0;
    return;
  }
  const double gap = std::log(uniform()) / std::log1p(-1.0 / one_in);
  visits.gap = static_cast<std::uint64_t>(gap);
}

void Budget::charge(Visits& visits, double cost_ns, bool is_own, HostNanoseconds now) {
  spent_ns_ += cost_ns;
  visits.spent_ns += cost_ns;
  if (is_own) ++visits.measured;
  if (now - began_ >= window_) {
    end_window(now);
    return;
  }
  if (visits.spent_ns <= level_ * static_cast<double>(now - began_) + visits.limit_ns) return;
  const double most = kAhead * level_ * static_cast<double>(window_);
  visits.limit_ns = most - (most - visits.limit_ns) / 2;
  set_one_in(visits, std::min(2 * visits.one_in, kLargest));
}

void Budget::begin_window(HostNanoseconds now) {
  began_ = now;
  spent_ns_ = 0.0;
  for (Visits* each : all_) {
    each->seen = each->measured = 0;
    each->spent_ns = 0.0;
    each->limit_ns = kAhead / 2 * level_ * static_cast<double>(window_);
    set_one_in(*each, each->one_in);
  }
}

// The level up to which each of the costs may go so that all together take the share.
double Budget::level_for(double share) {
  std::sort(costs_.begin(), costs_.end());
  double left = share;
  for (std::size_t i = 0; i < costs_.size(); ++i) {
    const double equal = left / static_cast<double>(costs_.size() - i);
    if (costs_[i] > equal || i + 1 == costs_.size()) return equal;
    left -= costs_[i];
  }
  return share;
}

void Budget::end_window(HostNanoseconds now) {
  const auto elapsed = static_cast<double>(now - began_);
  window_ = std::min(2 * window_, kLongestWindow);
  const double per_window = share_ * static_cast<double>(window_);
  owed_ns_ = std::clamp(owed_ns_ + spent_ns_ - share_ * elapsed, 0.0, kMostOwed * per_window);
  const double share = share_ * std::max(kLeastShare, 1.0 - owed_ns_ / per_window);
  costs_.clear();
  for (Visits* each : all_) {
    if (each->measured != 0) {
      const double before = each->per_visit_ns > 0.0 ? kWeighsAs : 0.0;
      each->per_visit_ns =
          (before * each->per_visit_ns + each->spent_ns) / (before + as_double(each->measured));
    }
    if (each->seen != 0) costs_.push_back(as_double(each->seen) * each->per_visit_ns / elapsed);
  }
  level_ = level_for(share);
  for (Visits* each : all_) {
    const double cost = as_double(each->seen) * each->per_visit_ns / elapsed;
    const double wanted = each->seen == 0 ? each->one_in / 2.0 : std::ceil(cost / level_);
    each->one_in = static_cast<std::uint32_t>(std::clamp(wanted, 1.0, double{kLargest}));
  }
  begin_window(now);
}

}  // namespace gpuprof::timing
