// The records of one collection, bounded: rows up to a limit, and for all that came a total per
// kind and name.
//
// Not thread-safe: the session holds its lock around every call. Times are CUPTI's until the end,
// when ClockMap says what they are on the host's clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "cupti/records.hpp"
#include "driver/host_clock.hpp"

namespace gpuprof::cupti {

// CUPTI's clock and the host's, read at the same time.
struct ClockPair {
  std::uint64_t cupti = 0;
  driver::HostNanoseconds host = 0;
  std::int64_t error = 0;  // how far apart in time the two may have been read
  bool realtime = true;    // whether CUPTI's clock is CLOCK_REALTIME, which it is unless a tool
                           // registered a clock of its own, such as torch's profiler
};

// CUPTI's times on the host's clock, from a pair before and a pair after them.
class ClockMap {
 public:
  ClockMap() = default;
  ClockMap(const ClockPair& first, const ClockPair& last) noexcept;

  [[nodiscard]] driver::HostNanoseconds at(std::uint64_t time) const noexcept;
  [[nodiscard]] std::int64_t duration(std::uint64_t units) const noexcept;
  // Of at(): the error of the pairs, and how far the wall clock was set in between.
  [[nodiscard]] std::int64_t error() const noexcept { return error_; }

 private:
  ClockPair first_;
  double rate_ = 1.0;   // nanoseconds a unit
  double drift_ = 0.0;  // of the wall clock against the host's, beside a rate of 1
  std::int64_t error_ = 0;
};

// Names, each kept once. Bounded: what comes after kMaxNames different ones gets one name together.
class Names {
 public:
  static constexpr std::size_t kMaxNames = 65'536;
  static constexpr std::size_t kMaxBytes = 65'536;  // of one name; the rest of it is cut off

  std::uint32_t intern(std::string_view name);
  [[nodiscard]] const std::deque<std::string>& all() const noexcept { return texts_; }

 private:
  std::deque<std::string> texts_;  // whose elements never move
  std::unordered_map<std::string_view, std::uint32_t> indices_;
};

struct Total {
  std::uint64_t count = 0;
  std::uint64_t units = 0;  // of CUPTI's clock
};

struct Counts {
  std::uint64_t activities = 0;        // with times, kept or not
  std::uint64_t dropped = 0;           // of those, past the limit
  std::uint64_t launches_dropped = 0;  // past the limit
  std::uint64_t untimed = 0;           // without times that can be; in no total
  std::uint64_t unknown = 0;           // of other kinds, or malformed
  std::uint64_t lost_by_cupti = 0;     // for lack of a buffer
};

// The names of CUDA's functions that queue work, by CUPTI's identifier of each.
class LaunchNames {
 public:
  using ById = std::unordered_map<std::uint32_t, std::string>;

  // Asks `name_of(domain, id)`, which returns null for identifiers that do not exist.
  template <typename Function>
  explicit LaunchNames(const Function& name_of) {
    for (int domain = 0; domain < 2; ++domain) {
      for (std::uint32_t id = 1; id < kEnd; ++id) {
        std::string name = launch_name(name_of(domain + 1, id));
        if (!name.empty()) names_[domain].emplace(id, std::move(name));
      }
    }
  }

  // Of kDriverRecord or kRuntimeRecord.
  [[nodiscard]] const ById& of(int kind) const { return names_[kind == kDriverRecord ? 0 : 1]; }

 private:
  static constexpr std::uint32_t kEnd = 2048;  // CUDA 13.5 has about 900
  ById names_[2];
};

class Collection {
 public:
  // At most `max_records` activities and twice as many launches are kept.
  Collection(std::size_t max_records, const LaunchNames& launches, const ClockPair& start);

  // Adds the record that lies at `record` and ends before `end`. Nothing is read behind `end`.
  // `now` is the host's time.
  void add(const std::uint8_t* record, const std::uint8_t* end, driver::HostNanoseconds now);

  // A buffer whose records cannot be read on, or a record that would not fit.
  void add_malformed() noexcept { ++counts_.unknown; }
  void add_lost(std::uint64_t count) noexcept { counts_.lost_by_cupti += count; }
  // For lack of memory.
  void add_unkept() noexcept { ++counts_.dropped; }

  [[nodiscard]] const std::deque<Activity>& activities() const noexcept { return activities_; }
  [[nodiscard]] const std::deque<Launch>& launches() const noexcept { return launches_; }
  [[nodiscard]] const std::deque<std::string>& names() const noexcept { return names_.all(); }
  [[nodiscard]] const Counts& counts() const noexcept { return counts_; }
  [[nodiscard]] const ClockPair& start() const noexcept { return start_; }

  template <typename Function>
  void for_each_total(Function&& function) const {
    for (const auto& [key, total] : totals_) {
      function(static_cast<Kind>(key >> 32U), static_cast<std::uint32_t>(key), total);
    }
  }

 private:
  [[nodiscard]] bool is_possible(std::uint64_t begin, std::uint64_t end,
                                 driver::HostNanoseconds now) const noexcept;
  void add_activity(const std::uint8_t* record, driver::HostNanoseconds now);
  void add_launch(const std::uint8_t* record, const LaunchNames::ById& names,
                  driver::HostNanoseconds now);

  const std::size_t max_records_;
  const LaunchNames& launch_names_;
  ClockPair start_;
  Names names_;
  std::deque<Activity> activities_;  // growing copies nothing
  std::deque<Launch> launches_;
  std::unordered_map<std::uint64_t, Total> totals_;
  Counts counts_;
};

}  // namespace gpuprof::cupti
