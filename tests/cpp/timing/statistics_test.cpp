#include "timing/statistics.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "support/own_process.hpp"

namespace gpuprof::timing {
namespace {

constexpr HostNanoseconds kMillisecond = 1'000'000;

// What a scope would hand over.
SampleRef sample_at(const char* path, double ms) {
  SampleRef sample(make_sample());
  sample->path = &path_below(root_path(), path);
  sample->clock = kCpuClock;
  sample->epoch = statistics::epoch();
  sample->device_ms = ms;
  sample->host_begin = 0;
  sample->host_end = static_cast<HostNanoseconds>(ms * static_cast<double>(kMillisecond));
  sample->finish(SampleStatus::kDone);
  return sample;
}

void add(const SampleRef& sample) {
  const Sample* const one = sample.get();
  statistics::add(&one, 1);
}

class Statistics : public testing::Test {
 protected:
  void SetUp() override { statistics::reset(); }
  void TearDown() override { statistics::reset(); }
};

TEST_F(Statistics, AreTheSumOfAllThreads) {
  constexpr int kMany = static_cast<int>(Quantiles::kExact) - 10;
  constexpr int kFew = 30;
  const auto add_all = [](int count, double ms, HostNanoseconds begin) {
    const SampleRef sample = sample_at("sum", ms);
    sample->host_begin += begin;
    sample->host_end += begin;
    for (int i = 0; i < count; ++i) add(sample);
  };
  add_all(kMany, 2.0, 5);
  std::thread([&] { add_all(kFew, 8.0, 3); }).join();
  const std::vector<Row> rows = statistics::rows(true);
  ASSERT_EQ(rows.size(), 1U);
  const Summary& host = rows[0].host;
  EXPECT_EQ(host.count, kMany + kFew);
  EXPECT_DOUBLE_EQ(host.total, 2.0 * kMany + 8.0 * kFew);
  EXPECT_EQ(host.min, 2.0);
  EXPECT_EQ(host.max, 8.0);
  EXPECT_EQ(host.first, 8.0) << "the one that began first";
  std::uint64_t in_bins = 0;
  for (const auto& [bin, count] : host.bins) in_bins += count;
  EXPECT_EQ(in_bins, host.count);
}

TEST_F(Statistics, OfMoreThreadsThanHavePartsOfTheirOwnAreComplete) {
  constexpr int kThreads = 100;
  std::atomic<int> inside{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      const SampleRef sample = sample_at("shared", 1.0);
      add(sample);
      ++inside;
      while (inside.load() < kThreads) std::this_thread::yield();  // all at once
      for (int n = 0; n < 50; ++n) add(sample);
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(statistics::rows().at(0).host.count, 51U * kThreads);
  // With all their locks.
  const auto count_is_right = [] { return statistics::rows().at(0).host.count == 51U * kThreads; };
  EXPECT_EQ(tests::forked([&] { return count_is_right() ? 0 : 1; }), 0);
}

TEST_F(Statistics, CountWhatAThreadLeavesForItsLastMoment) {
  struct Late {
    ~Late() { add(sample_at("late", 1.0)); }
  };
  std::thread([] {
    thread_local Late late;
    static_cast<void>(late);
    add(sample_at("late", 1.0));  // what statistics has of the thread is destroyed first
  }).join();
  EXPECT_EQ(statistics::rows().at(0).host.count, 2U);
}

// The lock is one that each scope of a thread takes.
TEST_F(Statistics, TakeSamplesOfOthersWhileTheyAreSummedUp) {
  constexpr int kRows = 500;
  for (int i = 0; i < kRows; ++i) {
    const SampleRef sample = sample_at(("row" + std::to_string(i)).c_str(), 1.0);
    for (std::size_t n = 0; n < Quantiles::kExact; ++n) {
      sample->host_end += kMillisecond * static_cast<HostNanoseconds>(n * 7919 % 13);
      add(sample);
    }
  }
  std::atomic<int> added{0};
  std::atomic<bool> stop{false};
  std::thread other([&] {
    const SampleRef sample = sample_at("other", 1.0);
    while (!stop.load()) {
      add(sample);
      ++added;
    }
  });
  while (added.load() == 0) std::this_thread::yield();
  const int before = added.load();
  const std::vector<Row> rows = statistics::rows();
  const int meanwhile = added.load() - before;
  stop = true;
  other.join();
  EXPECT_EQ(rows.size(), kRows + 1U);
  EXPECT_GT(meanwhile, 20);
}

TEST_F(Statistics, MayBeResetWhileTheyAreSummedUp) {
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop.load()) {
      for (int i = 0; i < 50; ++i) add(sample_at(("row" + std::to_string(i)).c_str(), 1.0));
      statistics::reset();
    }
  });
  for (int i = 0; i < 200; ++i) {
    for (const Row& row : statistics::rows()) EXPECT_EQ(row.host.count, 1U) << row.path->text;
  }
  stop = true;
  other.join();
}

}  // namespace
}  // namespace gpuprof::timing
