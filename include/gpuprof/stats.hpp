/// @file
/// Statistics of scopes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpuprof/version.hpp"

GPUPROF_BEGIN_NAMESPACE

/// What a series of times adds up to, in milliseconds. With a count of 0 all is 0.
///
/// Percentiles are of a histogram with 64 bins an octave: within 0.8 % of the exact ones.
struct Summary {
  std::uint64_t count = 0;
  double total = 0.0;
  double mean = 0.0;
  double min = 0.0;
  double p50 = 0.0;
  double p90 = 0.0;
  double p99 = 0.0;
  double max = 0.0;
  double first = 0.0;  ///< the first one, which often pays for compilation and lazy loading
};

/// The samples of one path on one clock.
struct Row {
  std::string path;                ///< "step/fwd"
  std::vector<std::string> names;  ///< the scopes, outermost first: {"step", "fwd"}
  std::string clock;               ///< "cuda" or "cpu"
  Summary gpu;                     ///< GPU time; empty on the host's clock
  Summary host;                    ///< from begin to end on the host
  std::uint64_t dropped = 0;       ///< found no room to wait for their result
  std::uint64_t pending = 0;       ///< have no result yet
  std::uint64_t failed = 0;        ///< ended with an exception, or were lost to the driver
  std::uint64_t skipped = 0;       ///< ran inside a stream capture

  [[nodiscard]] bool on_gpu() const noexcept { return clock == "cuda"; }
  /// GPU time where the clock has it, else host time.
  [[nodiscard]] const Summary& time() const noexcept { return on_gpu() ? gpu : host; }
  /// Whether the host needed about as long to queue the work as the GPU to do it: 90 % of its p50.
  [[nodiscard]] bool host_bound() const noexcept {
    return gpu.count > 0 && host.p50 >= 0.9 * gpu.p50;
  }
};

/// All rows, as they were at one moment, in the order in which their scopes were first entered.
class Stats {
 public:
  explicit Stats(std::vector<Row> rows, bool enabled = true)
      : rows_(std::move(rows)), enabled_(enabled) {}

  [[nodiscard]] const std::vector<Row>& rows() const noexcept { return rows_; }
  [[nodiscard]] auto begin() const noexcept { return rows_.begin(); }
  [[nodiscard]] auto end() const noexcept { return rows_.end(); }
  [[nodiscard]] std::size_t size() const noexcept { return rows_.size(); }
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }
  /// The first row of that path, such as "step/fwd"; null without one.
  [[nodiscard]] const Row* find(std::string_view path) const noexcept;
  /// The first row of that path. @throws std::out_of_range without one; the message names the path.
  [[nodiscard]] const Row& at(std::string_view path) const;

  /// The tree table as text, as `print(gpuprof.stats())` writes it in Python. Lines end in "\n".
  [[nodiscard]] std::string table() const;

 private:
  std::vector<Row> rows_;
  bool enabled_;
};

/// Writes the table.
std::ostream& operator<<(std::ostream& out, const Stats& stats);

/// Takes the statistics of all scopes of this process. Waits until the GPU has come to the end of
/// all scopes that were left before the call, unless `wait` is false: then these are `pending`.
[[nodiscard]] Stats stats(bool wait = true);

/// Waits for the scopes that were left before the call, and counts them.
void flush();

/// Forgets all samples, also those of scopes that were entered before the call and are left later.
void reset() noexcept;

GPUPROF_END_NAMESPACE
