#include "timing/statistics.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

namespace gpuprof::timing {
namespace {

constexpr HostNanoseconds kMillisecond = 1'000'000;

// What a scope would hand over.
SampleRef sample_at(const char* path, double ms, ClockId clock = kCpuClock) {
  SampleRef sample(make_sample());
  sample->path = &path_below(root_path(), path);
  sample->clock = clock;
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

  static const Row* row(const std::vector<Row>& rows, const std::string& path,
                        ClockId clock = kCpuClock) {
    for (const Row& found : rows) {
      if (found.path->text == path && found.clock == clock) return &found;
    }
    return nullptr;
  }
};

TEST_F(Statistics, AreEmptyAtFirst) { EXPECT_TRUE(statistics::rows().empty()); }

TEST_F(Statistics, SumUpASeries) {
  for (const double ms : {4.0, 1.0, 2.0, 3.0}) add(sample_at("series", ms));
  const std::vector<Row> rows = statistics::rows();
  ASSERT_EQ(rows.size(), 1U);
  const Summary& host = rows[0].host;
  EXPECT_EQ(host.count, 4U);
  EXPECT_DOUBLE_EQ(host.total, 10.0);
  EXPECT_DOUBLE_EQ(host.mean, 2.5);
  EXPECT_DOUBLE_EQ(host.min, 1.0);
  EXPECT_DOUBLE_EQ(host.max, 4.0);
  EXPECT_DOUBLE_EQ(host.p50, 2.5);
  EXPECT_DOUBLE_EQ(host.first, 4.0);
  EXPECT_FALSE(rows[0].has_device);
  EXPECT_EQ(rows[0].device.count, 0U);
}

TEST_F(Statistics, KeepDeviceAndHostTimesApart) {
  SampleRef sample = sample_at("both", 2.0, kCudaClock);
  sample->host_end = 5 * kMillisecond;
  add(sample);
  const std::vector<Row> rows = statistics::rows();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_TRUE(rows[0].has_device);
  EXPECT_DOUBLE_EQ(rows[0].device.total, 2.0);
  EXPECT_DOUBLE_EQ(rows[0].host.total, 5.0);
}

TEST_F(Statistics, HaveARowForEachPathAndClockInOrderOfFirstUse) {
  add(sample_at("z", 1.0));
  add(sample_at("a", 1.0));
  add(sample_at("z", 1.0, kCudaClock));
  const std::vector<Row> rows = statistics::rows();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].path->text, "z");
  EXPECT_EQ(rows[0].clock, kCudaClock);
  EXPECT_EQ(rows[1].path->text, "z");
  EXPECT_EQ(rows[1].clock, kCpuClock);
  EXPECT_EQ(rows[2].path->text, "a");
}

TEST_F(Statistics, CountWhatWasNotMeasured) {
  for (const SampleStatus status : {SampleStatus::kDropped, SampleStatus::kDropped,
                                    SampleStatus::kSkipped, SampleStatus::kFailed}) {
    const SampleRef sample = sample_at("unmeasured", 1.0);
    sample->finish(status);
    add(sample);
  }
  const std::vector<Row> rows = statistics::rows();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].dropped, 2U);
  EXPECT_EQ(rows[0].skipped, 1U);
  EXPECT_EQ(rows[0].failed, 1U);
  EXPECT_EQ(rows[0].host.count, 0U);
}

TEST_F(Statistics, KeepSamplesWhoseBodyRaisedOutOfTheTimes) {
  const SampleRef sample = sample_at("raised", 1.0);
  sample->body_raised = true;
  add(sample);
  add(sample_at("raised", 3.0));
  const std::vector<Row> rows = statistics::rows();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].failed, 1U);
  EXPECT_EQ(rows[0].host.count, 1U);
  EXPECT_DOUBLE_EQ(rows[0].host.total, 3.0);
}

TEST_F(Statistics, LeaveOutWhatBelongsNotIntoThem) {
  const SampleRef unnamed = sample_at("uncounted", 1.0);
  unnamed->counted = false;
  add(unnamed);
  EXPECT_TRUE(statistics::rows().empty());
}

TEST_F(Statistics, ForgetWhatWasEnteredBeforeAReset) {
  const SampleRef before = sample_at("epoch", 1.0);
  statistics::reset();
  add(before);
  EXPECT_TRUE(statistics::rows().empty());
  add(sample_at("epoch", 7.0));
  const std::vector<Row> rows = statistics::rows();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_DOUBLE_EQ(rows[0].host.total, 7.0);
}

TEST_F(Statistics, AQuantileNeverLeavesTheRangeOfTheValues) {
  for (int i = 0; i < 5000; ++i) add(sample_at("clamped", 1.0));
  const std::vector<Row> rows = statistics::rows();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_DOUBLE_EQ(rows[0].host.p50, 1.0);
  EXPECT_DOUBLE_EQ(rows[0].host.p99, 1.0);
}

TEST_F(Statistics, TakeABatchOfMixedRows) {
  const std::vector<SampleRef> held{sample_at("one", 1.0), sample_at("two", 2.0),
                                    sample_at("one", 3.0)};
  std::vector<const Sample*> batch;
  batch.reserve(held.size());
  for (const SampleRef& sample : held) batch.push_back(sample.get());
  statistics::add(batch.data(), batch.size());
  const std::vector<Row> rows = statistics::rows();
  ASSERT_NE(row(rows, "one"), nullptr);
  EXPECT_DOUBLE_EQ(row(rows, "one")->host.total, 4.0);
  ASSERT_NE(row(rows, "two"), nullptr);
  EXPECT_DOUBLE_EQ(row(rows, "two")->host.total, 2.0);
}

TEST_F(Statistics, CountEverySampleOfEveryThread) {
  constexpr int kThreads = 8;
  constexpr int kEach = 500;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      const std::string own = "thread " + std::to_string(t);
      for (int i = 0; i < kEach; ++i) {
        add(sample_at("everyone", 1.0));
        add(sample_at(own.c_str(), 1.0));
      }
    });
  }
  for (int i = 0; i < 20; ++i) statistics::rows();
  for (std::thread& thread : threads) thread.join();
  const std::vector<Row> rows = statistics::rows();
  ASSERT_EQ(rows.size(), kThreads + 1U);
  ASSERT_NE(row(rows, "everyone"), nullptr);
  EXPECT_EQ(row(rows, "everyone")->host.count, std::uint64_t{kThreads} * kEach);
  ASSERT_NE(row(rows, "thread 3"), nullptr);
  EXPECT_EQ(row(rows, "thread 3")->host.count, std::uint64_t{kEach});
}

// The lock is one that each scope takes.
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
