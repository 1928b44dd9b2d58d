#include "cupti/collection.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cupti/library.hpp"

namespace gpuprof::cupti {
namespace {

// A record of an earlier collection that comes late begins before this one. The GPU's times are
// fitted to the host's clock, and may be off by some microseconds.
constexpr std::uint64_t kSlackBefore = 10'000'000;

// After a tool has changed CUPTI's clock, the first records may still be on the one before, which
// is off by a day or more. This much ahead of the host's clock, at eight units a nanosecond, is
// possible where the wall clock was set or another clock counts.
constexpr std::uint64_t kSlackAfter = 3'600'000'000'000;
constexpr std::uint64_t kFastestClock = 8;

// Two pairs of one clock may differ by this much beside their errors.
constexpr std::int64_t kSameClock = 1'000;

constexpr std::string_view kOtherNames = "(other names)";
constexpr std::string_view kNoName = "(unnamed kernel)";

double signed_difference(std::uint64_t later, std::uint64_t earlier) noexcept {
  return static_cast<double>(static_cast<std::int64_t>(later - earlier));
}

}  // namespace

ClockMap::ClockMap(const ClockPair& first, const ClockPair& last) noexcept : first_(first) {
  const double units = signed_difference(last.cupti, first.cupti);
  const auto host = static_cast<double>(last.host - first.host);
  error_ = std::max(first.error, last.error);
  if (units <= 0.0 || host <= 0.0) return;
  if (first.realtime && last.realtime) {
    // Both clocks run at one rate, so that a difference is the wall clock being set.
    const double set_by = std::abs(host - units);
    if (set_by <= static_cast<double>(first.error + last.error + kSameClock)) return;
    drift_ = (host - units) / units;
    error_ += static_cast<std::int64_t>(set_by);
  } else {
    rate_ = host / units;
  }
}

driver::HostNanoseconds ClockMap::at(std::uint64_t time) const noexcept {
  const double since = signed_difference(time, first_.cupti);
  if (rate_ != 1.0) return first_.host + std::llround(since * rate_);
  return first_.host + static_cast<std::int64_t>(time - first_.cupti) +
         std::llround(since * drift_);
}

std::int64_t ClockMap::duration(std::uint64_t units) const noexcept {
  return rate_ == 1.0 ? static_cast<std::int64_t>(units)
                      : std::llround(static_cast<double>(units) * rate_);
}

std::uint32_t Names::intern(std::string_view name) {
  name = name.substr(0, kMaxBytes);
  if (const auto found = indices_.find(name); found != indices_.end()) return found->second;
  if (texts_.size() >= kMaxNames && name != kOtherNames) return intern(kOtherNames);
  const auto index = static_cast<std::uint32_t>(texts_.size());
  texts_.emplace_back(name);
  indices_.emplace(texts_.back(), index);
  return index;
}

Collection::Collection(std::size_t max_records, const LaunchNames& launches, const ClockPair& start)
    : max_records_(max_records), launch_names_(launches), start_(start) {}

void Collection::add(const std::uint8_t* record, const std::uint8_t* end,
                     driver::HostNanoseconds now) {
  const auto left = static_cast<std::size_t>(end - record);
  const int kind = left < sizeof(std::int32_t) ? 0 : kind_of(record);
  const std::size_t needed = bytes_read_of(kind);
  if (needed == 0 || left < needed) {
    add_malformed();
  } else if (kind == kRuntimeRecord || kind == kDriverRecord) {
    add_launch(record, launch_names_.of(kind), now);
  } else {
    add_activity(record, now);
  }
}

bool Collection::is_possible(std::uint64_t begin, std::uint64_t end,
                             driver::HostNanoseconds now) const noexcept {
  // Differences of one sign: times near the greatest number may come, too.
  if (begin == 0 || end < begin) return false;
  if (begin < start_.cupti && start_.cupti - begin > kSlackBefore) return false;
  const auto elapsed = static_cast<std::uint64_t>(std::max<std::int64_t>(now - start_.host, 0));
  return end < start_.cupti || end - start_.cupti < elapsed * kFastestClock + kSlackAfter;
}

void Collection::add_activity(const std::uint8_t* record, driver::HostNanoseconds now) {
  Activity row = activity_of(record);
  if (!is_possible(row.begin, row.end, now)) {
    ++counts_.untimed;
    return;
  }
  if (row.kind == Kind::kKernel) {
    const char* symbol = kernel_symbol(record);
    row.name = names_.intern(
        symbol == nullptr ? kNoName : std::string_view(symbol, strnlen(symbol, Names::kMaxBytes)));
  } else {
    row.name = names_.intern(work_name(record));
  }
  Total& total = totals_[static_cast<std::uint64_t>(row.kind) << 32U | row.name];
  ++total.count;
  total.units += row.end - row.begin;
  ++counts_.activities;
  if (activities_.size() < max_records_) {
    activities_.push_back(row);
  } else {
    ++counts_.dropped;
  }
}

void Collection::add_launch(const std::uint8_t* record, const LaunchNames::ById& names,
                            driver::HostNanoseconds now) {
  std::uint32_t id = 0;
  Launch row = launch_of(record, id);
  const auto named = names.find(id);
  if (named == names.end()) return;  // it launches nothing
  if (!is_possible(row.begin, row.end, now)) {
    ++counts_.untimed;
    return;
  }
  row.name = names_.intern(named->second);
  if (launches_.size() / 2 < max_records_) {  // CUDA's runtime calls the driver for each
    launches_.push_back(row);
  } else {
    ++counts_.launches_dropped;
  }
}

}  // namespace gpuprof::cupti
