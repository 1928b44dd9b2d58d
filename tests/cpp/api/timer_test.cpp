#include "gpuprof/timer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gpuprof/probes.hpp"
#include "gpuprof/stats.hpp"
#include "gpuprof/switches.hpp"
#include "gpuprof/warnings.hpp"
#include "support/allocations.hpp"
#include "support/fake.hpp"

namespace gpuprof::tests {
namespace {

class ApiTimer : public OnDevice {};

TEST_F(ApiTimer, MeasuresTheWorkOfItsStreamUnderItsPath) {
  Sample inner;
  {
    const timer step{"step", stream_};
    timer forward{"forward", stream_};
    work(stream_, 2'000'000);
    inner = forward.stop();
    work(stream_, 3'000'000);
  }
  const Stats all = stats();
  EXPECT_EQ(inner.path(), "step/forward");
  EXPECT_NEAR(inner.ms(), 2.0, 0.1);
  EXPECT_NEAR(all.at("step").gpu.total, 5.0, 0.2);
  EXPECT_EQ(all.at("step/forward").gpu.count, 1U);
  EXPECT_EQ(all.at("step/forward").names, (std::vector<std::string>{"step", "forward"}));
}

// On the host's clock, because the fake driver allocates in the calls of the other one. The few
// that are left are new bins of the statistics, for times that did not occur before.
TEST(ApiScope, AllocatesNothingItselfOnceItsThreadIsWarm) {
  const auto scopes = [] {
    for (int i = 0; i < 5000; ++i) {
      const timer outer{"outer", Clock::kCpu};
      const timer inner{"inner", Clock::kCpu};
    }
  };
  scopes();
  const std::uint64_t before = allocations;
  scopes();
  EXPECT_LT(allocations - before, 1000U);
  reset();
}

TEST_F(ApiTimer, CountsAnExceptionAsFailedAndLetsItThrough) {
  const auto body = [&] {
    const timer scope("body", stream_);
    throw std::out_of_range("its own");
  };
  EXPECT_THROW(body(), std::out_of_range);
  const Stats all = stats();
  EXPECT_EQ(all.at("body").failed, 1U);
  EXPECT_EQ(all.at("body").gpu.count, 0U);
}

TEST_F(ApiTimer, NeverThrowsWhereTheDriverRefuses) {
  std::string warned;
  set_warning_handler([&](const std::string& message) { warned = message; });
  script("cuEventRecord@1=400");
  Sample sample;
  {
    timer refused{"refused", stream_};
    sample = refused.sample();
  }
  set_warning_handler({});
  EXPECT_TRUE(sample.failed());
  EXPECT_NE(warned.find("CUDA_ERROR_INVALID_HANDLE"), std::string::npos);
  try {
    static_cast<void>(sample.ms());
    FAIL() << "a failed sample had a time";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), 400);
    EXPECT_EQ(error.call(), "cuEventRecord");
  }
}

TEST_F(ApiTimer, DropsWhatAWarningHandlerThrowsWhateverItIs) {
  int calls = 0;
  set_warning_handler([&](const std::string&) {
    ++calls;
    throw 1;  // NOLINT: whatever it is
  });
  script("cuEventRecord@1=400");
  {
    const timer refused{"refused", stream_};
  }
  set_warning_handler({});
  EXPECT_EQ(calls, 1);
}

TEST_F(ApiTimer, PendingRowsAreInTheOrderOfTheirFirstEntries) {
  const std::vector<std::string> names{"pending c", "pending a", "pending d", "pending b"};
  for (const std::string& name : names) {
    const timer scope{name, stream_};
    work(stream_, 1'000'000);
  }
  std::vector<std::string> shown;
  for (const Row& row : stats(/*wait=*/false)) shown.push_back(row.path);
  EXPECT_EQ(shown, names);
  flush();
}

TEST_F(ApiTimer, MayEndOnAnotherThreadAndInAnyOrder) {
  auto outer = std::make_unique<timer>("outer", stream_);
  auto inner = std::make_unique<timer>("inner", stream_);
  outer.reset();
  std::thread([&] { inner.reset(); }).join();
  {
    const timer next{"next", stream_};
  }
  const Stats all = stats();
  EXPECT_EQ(all.at("outer/inner").gpu.count, 1U);
  EXPECT_NE(all.find("next"), nullptr) << "the thread's stack is not empty";
}

TEST_F(ApiTimer, SkipsAForeignCapture) {
  set_warning_handler({});
  Sample sample;
  {
    const Capture capture(stream_);
    timer inside{"inside", stream_};
    sample = inside.stop();
  }
  EXPECT_EQ(stats().at("inside").skipped, 1U);
  EXPECT_THROW(static_cast<void>(sample.ms()), Error);
}

TEST_F(ApiTimer, MeasuresNothingWhileTimingIsOff) {
  disable();
  Sample sample;
  {
    timer off{"off", stream_};
    sample = off.stop();
  }
  enable();
  EXPECT_FALSE(sample);
  EXPECT_TRUE(std::isnan(sample.ms()));
  EXPECT_EQ(stats().find("off"), nullptr);
}

TEST_F(ApiTimer, AnOpenSampleHasNoTimeYet) {
  const timer open{"open", stream_};
  EXPECT_FALSE(open.sample().ready());
  EXPECT_THROW(static_cast<void>(open.sample().ms()), Error);
}

TEST_F(ApiTimer, PairsOfStartAndStopMeasureWithoutStatistics) {
  Timer span{Stream(stream_)};
  EXPECT_EQ(span.elapsed_ms(), 0.0);
  for (int i = 1; i <= 3; ++i) {
    span.start();
    work(stream_, std::int64_t{i} * 1'000'000);
    span.stop();
    EXPECT_NEAR(span.elapsed_ms(), i, 0.1);
  }
  EXPECT_TRUE(stats().empty());
  EXPECT_EQ(span.clock(), Clock::kCuda);
  Timer never{Stream(stream_)};
  EXPECT_THROW(never.stop(), Error);
}

TEST_F(ApiTimer, ProbesAreNoneWhereTheyAreOff) {
  EXPECT_FALSE(finish_probe_timer(start_probe_timer_if(false, Stream(stream_))));
  auto probe = start_probe_timer_if(true, Stream(stream_));
  work(stream_, 4'000'000);
  const auto us = finish_probe_timer_traced(std::move(probe), "copy", "io");
  ASSERT_TRUE(us.has_value());
  EXPECT_NEAR(*us, 4000.0, 100.0);
}

TEST(ApiTable, ShowsATreeAsThePythonPackageDoes) {
  const auto row = [](std::vector<std::string> names, double gpu, double host,
                      std::uint64_t count) {
    Row made;
    for (const std::string& name : names) made.path += (made.path.empty() ? "" : "/") + name;
    made.names = std::move(names);
    made.clock = "cuda";
    made.gpu = {count, gpu * static_cast<double>(count), gpu, gpu, gpu, gpu, gpu, gpu, gpu};
    made.host = {count, host * static_cast<double>(count), host, host, host, host, host, host,
                 host};
    return made;
  };
  Row odd = row({"odd\n\xC3\xA9"}, 0.0, 0.0, 0);
  odd.dropped = 1234;
  const Stats stats({row({"step"}, 12.25, 0.5, 1000), row({"step", "fwd"}, 4.0, 3.99, 1000),
                     row({"step", "fwd", "gap", "deep"}, 0.00025, 0.0000421, 7), odd});
  std::ifstream file(std::string(GPUPROF_TESTS_FOLDER) + "/api/table.txt");
  const std::string expected(std::istreambuf_iterator<char>(file), {});
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(stats.table(), expected);
}

TEST(ApiTable, SaysThatThereIsNothing) {
  EXPECT_NE(Stats({}).table().find("no samples yet"), std::string::npos);
  EXPECT_NE(Stats({}, false).table().find("switched off"), std::string::npos);
  EXPECT_THROW(static_cast<void>(Stats({}).at("step")), std::out_of_range);
}

}  // namespace
}  // namespace gpuprof::tests
