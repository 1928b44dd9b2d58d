/// @file
/// How long a call takes on the GPU, sample by sample, for `gpuprof compare`, `ab` and `history`.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gpuprof/stream.hpp"

GPUPROF_BEGIN_NAMESPACE

/// How to measure. Those of Python's `gpuprof.benchmark` have the same names and values.
struct BenchmarkOptions {
  std::string name = "benchmark";
  /// Where this is on each axis, such as `{{"block", "128"}, {"n", "1e6"}}`. They are part of the
  /// result's name, `saxpy[block=128,n=1e6]`, so that each point is compared with itself.
  std::vector<std::pair<std::string, std::string>> axes;
  bool graph = true;  ///< capture the calls into graphs; where that fails they are queued
  double warmup_s = 0.2;
  std::size_t min_samples = 30;
  double min_time_s = 0.1;
  double max_time_s = 10.0;
  double rel_precision = 0.01;  ///< stop where the interval of the median is this far to each side
};

/// What was measured. Plain data; statistics and verdicts are Python's, which reads it.
struct BenchmarkResult {
  std::string name;                ///< with the axes
  std::string mode;                ///< "graph" or "batched", as in Python
  std::vector<double> samples_ms;  ///< the time of a call, in the order in which they were taken
  double host_ms = 0.0;            ///< the median of what the host needs to queue a call
  double tick_ms = 0.0;            ///< the smallest step that a sample can have
  std::size_t calls_per_sample = 1;
  bool gated = true;                  ///< the GPU began once the work of a sample was queued
  std::vector<std::string> warnings;  ///< what was measured otherwise than asked for
  std::vector<std::pair<std::string, std::string>> axes;
  std::string machine = "{}";  ///< GPU and driver, as JSON
  std::string created;         ///< ISO 8601, UTC
  double duration_s = 0.0;

  [[nodiscard]] double median_ms() const;
  /// The result as `gpuprof.BenchResult.from_json` reads it.
  [[nodiscard]] std::string to_json() const;
};

/// Measures how long a call of `f` takes in stream order: the slope of n and m calls that are
/// queued behind a closed gate, so that neither the host nor the events are in it.
///
/// `f` gives `stream` the same work in each call. It is called many times: first as it is, then
/// captured into graphs, unless `graph` is off or the capture fails, as on the default stream.
/// Scopes in `f` measure as ever, but for those in graphs. Waits for the GPU.
/// @throws Error no driver or device, or `f` gives the stream no work
/// @throws std::invalid_argument an option makes no sense
/// What `f` throws outside of a capture comes through.
[[nodiscard]] BenchmarkResult benchmark(Stream stream, const std::function<void()>& f,
                                        const BenchmarkOptions& options = {});

/// Writes the results of one run of a program as a file that `gpuprof compare`, `ab` and `save`
/// take; one that is there is replaced.
/// @throws std::invalid_argument there are none, or two of one name
/// @throws std::runtime_error the file cannot be written
void write_benchmarks(const std::string& path, const std::vector<BenchmarkResult>& results);

GPUPROF_END_NAMESPACE
