#include "timing/sample.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/own_process.hpp"

namespace gpuprof::timing {
namespace {

TEST(Sample, AssignedToItselfStays) {
  SampleRef sample(make_sample());
  const SampleRef& same = sample;
  sample = same;
  ASSERT_TRUE(sample);
  EXPECT_EQ(sample->references.load(), 1U);
}

TEST(Sample, ComesBackFromThePoolAsNew) {
  {
    const SampleRef used(make_sample());
    used->clock = kCudaClock;
    used->counted = false;
    used->body_raised = true;
    used->device_ms = 7.0;
    used->fail(driver::Error(driver::ErrorKind::kGone, "gone"));
  }
  const SampleRef fresh(make_sample());
  EXPECT_EQ(fresh->load_status(), SampleStatus::kOpen);
  EXPECT_EQ(fresh->clock, kCpuClock);
  EXPECT_TRUE(fresh->counted);
  EXPECT_FALSE(fresh->body_raised);
  EXPECT_EQ(fresh->device_ms, 0.0);
  EXPECT_FALSE(fresh->error);
}

TEST(Sample, PoolKeepsABoundedNumber) {
  constexpr std::size_t kMany = 20'000;
  {
    std::vector<SampleRef> held;
    held.reserve(kMany);
    for (std::size_t i = 0; i < kMany; ++i) held.emplace_back(make_sample());
    EXPECT_GE(samples_in_memory(), kMany);
  }
  EXPECT_LT(samples_in_memory(), kMany / 2);
}

TEST(Sample, ManyThreadsShareThePool) {
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([t] {
      std::vector<SampleRef> held;
      for (int i = 0; i < 2000; ++i) {
        held.emplace_back(make_sample());
        held.back()->stream = static_cast<std::uintptr_t>(t);
        if (held.size() == 50) {
          for (const SampleRef& sample : held) {
            ASSERT_EQ(sample->stream, static_cast<std::uintptr_t>(t));
          }
          held.clear();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ClockId, RefusesNamesWithoutEnd) {
  tests::in_own_process([] {
    for (int i = 2; i < 1000; ++i) clock_id("clock " + std::to_string(i));
    EXPECT_THROW(clock_id("one more"), std::length_error);
    EXPECT_EQ(clock_name(clock_id("clock 500")), "clock 500");
  });
}

}  // namespace
}  // namespace gpuprof::timing
