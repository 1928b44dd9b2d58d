#include "gpuprof/benchmark.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>

#include "support/comma_locale.hpp"
#include "support/fake.hpp"
#include "support/public_graphs.hpp"

namespace gpuprof::tests {
namespace {

constexpr double kCallMs = 0.010;

void ten_microseconds(CUstream stream) {
  for (int i = 0; i < 10; ++i) kernel(stream, "one_microsecond");
}

BenchmarkOptions quick(const std::string& name) {
  BenchmarkOptions options;
  options.name = name;
  options.warmup_s = 0.0;
  options.min_samples = 12;
  options.min_time_s = 0.0;
  options.rel_precision = 1.0;
  return options;
}

class ApiBenchmark : public OnDevice {
 protected:
  BenchmarkResult measure(const BenchmarkOptions& options) {
    return benchmark(stream_, [this] { ten_microseconds(stream_); }, options);
  }
};

TEST_F(ApiBenchmark, IsTheSlopeOfCallsInGraphs) {
  const BenchmarkResult result = measure(quick("saxpy"));
  EXPECT_EQ(result.mode, "graph");
  EXPECT_TRUE(result.gated);
  EXPECT_EQ(result.warnings, std::vector<std::string>{});
  EXPECT_EQ(result.samples_ms.size(), 12U);
  EXPECT_NEAR(result.median_ms(), kCallMs, 0.001);
  // The calls of a slope take 0.4 ms together.
  EXPECT_NEAR(static_cast<double>(result.calls_per_sample), 40.0, 5.0);
  EXPECT_GT(result.tick_ms, 0.0);
  EXPECT_LT(result.tick_ms, kCallMs);
}

TEST_F(ApiBenchmark, QueuesTheCallsWhereGraphsAreOff) {
  BenchmarkOptions options = quick("saxpy");
  options.graph = false;
  const BenchmarkResult result = measure(options);
  EXPECT_EQ(result.mode, "batched");
  EXPECT_NEAR(result.median_ms(), kCallMs, 0.001);
  EXPECT_EQ(result.warnings, std::vector<std::string>{});
}

TEST_F(ApiBenchmark, QueuesTheCallsThatCannotBeCapturedAndSaysSo) {
  const auto refuses = [this] {
    if (is_stream_capturing(stream_)) throw std::runtime_error("not now\nnor later");
    ten_microseconds(stream_);
  };
  const BenchmarkResult result = benchmark(stream_, refuses, quick("refuses"));
  EXPECT_EQ(result.mode, "batched");
  ASSERT_EQ(result.warnings.size(), 1U);
  EXPECT_NE(result.warnings[0].find("queued one by one: not now"), std::string::npos);
  EXPECT_EQ(result.warnings[0].find("nor later"), std::string::npos);
  EXPECT_NEAR(result.median_ms(), kCallMs, 0.001);
}

TEST_F(ApiBenchmark, MeasuresOnTheDefaultStreamWithoutAGraph) {
  const BenchmarkResult result =
      benchmark(Stream{}, [] { ten_microseconds(nullptr); }, quick("default"));
  EXPECT_EQ(result.mode, "batched");
  EXPECT_NEAR(result.median_ms(), kCallMs, 0.001);
}

TEST_F(ApiBenchmark, GivesTheGateUpForAFunctionThatWaits) {
  const auto waits = [this] {
    ten_microseconds(stream_);
    table_->cuStreamSynchronize(stream_);
  };
  const BenchmarkResult result = benchmark(stream_, waits, quick("waits"));
  EXPECT_FALSE(result.gated);
  const auto said = [&](const char* text) {
    return std::any_of(result.warnings.begin(), result.warnings.end(),
                       [&](const auto& each) { return each.find(text) != std::string::npos; });
  };
  EXPECT_TRUE(said("not held back: the function waits for the GPU"));
}

TEST_F(ApiBenchmark, HoldsTheGpuBackForLongerWhereTheHostTakesLong) {
  const auto slow = [this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ten_microseconds(stream_);
  };
  BenchmarkOptions options = quick("slow");
  options.graph = false;
  options.max_time_s = 1e-9;
  const BenchmarkResult result = benchmark(stream_, slow, options);
  EXPECT_TRUE(result.gated);
  EXPECT_NEAR(result.median_ms(), kCallMs, 0.001);
}

TEST_F(ApiBenchmark, MeasuresWithoutAGateWhereTheDeviceHasNone) {
  script("cuStreamWaitValue32_v2@1*=801");
  const BenchmarkResult result = measure(quick("saxpy"));
  EXPECT_FALSE(result.gated);
  EXPECT_NEAR(result.median_ms(), kCallMs, 0.002);
}

TEST_F(ApiBenchmark, RefusesAFunctionWithoutWorkOnItsStream) {
  const CUstream other = make_stream();
  const std::string text = text_of<Error>(
      [&] { (void)benchmark(stream_, [&] { ten_microseconds(other); }, quick("elsewhere")); });
  EXPECT_NE(text.find("no work of the function was seen on stream"), std::string::npos);
}

TEST_F(ApiBenchmark, RefusesAStreamThatIsBeingCaptured) {
  const Capture capturing(stream_);
  const std::string text = text_of<Error>([&] { (void)measure(quick("captured")); });
  EXPECT_NE(text.find("is being captured"), std::string::npos);
}

TEST_F(ApiBenchmark, LetsWhatTheFunctionThrowsThrough) {
  EXPECT_THROW((void)benchmark(
                   stream_, [] { throw std::out_of_range("its own"); }, quick("throws")),
               std::out_of_range);
}

TEST_F(ApiBenchmark, OpensTheGateWhereTheFunctionThrowsBehindIt) {
  int calls = 0;  // some 60 of them come before the first sample
  const auto throws = [&] {
    if (++calls > 100) throw std::out_of_range("its own");
    ten_microseconds(stream_);
  };
  BenchmarkOptions options = quick("throws late");
  options.graph = false;
  EXPECT_THROW((void)benchmark(stream_, throws, options), std::out_of_range);
  EXPECT_EQ(calls, 101);
  EXPECT_EQ(table_->cuStreamSynchronize(stream_), CUDA_SUCCESS);
}

TEST_F(ApiBenchmark, TakesSamplesUntilTheMedianIsKnownOrTheTimeIsOver) {
  BenchmarkOptions options = quick("long");
  options.max_time_s = 1e-9;
  options.rel_precision = 0.0;
  const BenchmarkResult result = measure(options);
  EXPECT_EQ(result.samples_ms.size(), 1U);
  options.max_time_s = 60.0;
  options.rel_precision = 0.01;
  options.min_samples = 100;
  EXPECT_GE(measure(options).samples_ms.size(), 100U);
}

TEST_F(ApiBenchmark, HasTheAxesInItsName) {
  BenchmarkOptions options = quick("saxpy");
  options.axes = {{"block", "128"}, {"n", "1e6"}};
  const BenchmarkResult result = measure(options);
  EXPECT_EQ(result.name, "saxpy[block=128,n=1e6]");
  EXPECT_NE(result.to_json().find("\"params\": {\"block\": \"128\", \"n\": \"1e6\"}"),
            std::string::npos);
}

TEST_F(ApiBenchmark, WritesJsonInEveryLocaleAndOfResultsThatWereMadeByHand) {
  BenchmarkResult result;
  result.name = "by hand";
  result.samples_ms = {0.25, 1e-9};
  const CommaLocale comma;
  const std::string json = result.to_json();
  EXPECT_NE(json.find(R"("samples_ms": [0.25, 1e-09], "host_ms": 0,)"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("machine": {},)"), std::string::npos) << json;
}

TEST_F(ApiBenchmark, RefusesOptionsThatMakeNoSense) {
  const auto refused = [&](auto change) {
    BenchmarkOptions options = quick("odd");
    change(options);
    EXPECT_THROW((void)measure(options), std::invalid_argument);
  };
  refused([](BenchmarkOptions& options) { options.name.clear(); });
  refused([](BenchmarkOptions& options) { options.axes = {{"block", ""}}; });
  refused([](BenchmarkOptions& options) { options.warmup_s = -1.0; });
  refused([](BenchmarkOptions& options) { options.max_time_s = 0.0; });
  refused([](BenchmarkOptions& options) { options.min_samples = 0; });
}

TEST_F(ApiBenchmark, WritesNoFileOfNothingOrOfTwoResultsOfOneName) {
  const BenchmarkResult result = measure(quick("saxpy"));
  EXPECT_THROW(write_benchmarks("unused.json", {}), std::invalid_argument);
  EXPECT_NE(text_of<std::invalid_argument>([&] {
              write_benchmarks("unused.json", {result, result});
            }).find("two results are called 'saxpy'"),
            std::string::npos);
  BenchmarkResult one = result, other = result;  // whose names are the same where they are cut
  one.name = std::string(5000, 'x') + "1";
  other.name = std::string(5000, 'x') + "2";
  EXPECT_THROW(write_benchmarks("unused.json", {one, other}), std::invalid_argument);
  EXPECT_NE(text_of<std::runtime_error>([&] {
              write_benchmarks("/nowhere/at/all", {result});
            }).find("'/nowhere/at/all' cannot be written"),
            std::string::npos);
}

}  // namespace
}  // namespace gpuprof::tests
