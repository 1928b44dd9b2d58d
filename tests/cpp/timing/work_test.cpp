#include "timing/work.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "timing/sample.hpp"
#include "timing/statistics.hpp"

namespace gpuprof::timing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

SampleRef worked(double flops, double nbytes, double ms, ClockId clock = kCudaClock) {
  SampleRef sample(make_sample());
  sample->path = &path_below(root_path(), "worked");
  sample->clock = clock;
  sample->epoch = statistics::epoch();
  sample->device_ms = ms;
  sample->host_end = 5'000'000;
  SpanDetails& details = details_of(*sample.get());
  details.flops = flops;
  details.nbytes = nbytes;
  sample->finish(SampleStatus::kDone);
  return sample;
}

void count(const SampleRef& sample) {
  const Sample* const one = sample.get();
  statistics::add(&one, 1);
}

class Work : public testing::Test {
 protected:
  void SetUp() override { statistics::reset(); }
  void TearDown() override { statistics::reset(); }

  static Row only_row() {
    const std::vector<Row> rows = statistics::rows();
    EXPECT_EQ(rows.size(), 1U);
    return rows.at(0);
  }
};

TEST_F(Work, IsMadeWhenItIsFirstAskedForAndGoesWithTheSample) {
  SampleRef sample(make_sample());
  EXPECT_EQ(sample->details, nullptr);
  SpanDetails& details = details_of(*sample.get());
  EXPECT_EQ(&details_of(*sample.get()), &details);
  EXPECT_FALSE(details.has_work());
  details.nbytes = 0.0;
  EXPECT_TRUE(details.has_work());
  Sample* raw = sample.get();
  sample = SampleRef();
  sample = SampleRef(make_sample());  // the same one, from the pool
  ASSERT_EQ(sample.get(), raw);
  EXPECT_EQ(sample->details, nullptr);
}

TEST_F(Work, SumsFlopsAndBytesOverTheirOwnTimes) {
  count(worked(100.0, -1.0, 1.0));
  count(worked(300.0, 50.0, 2.0));
  count(worked(-1.0, 70.0, 4.0));
  const WorkSums work = only_row().work;
  EXPECT_EQ(work.count, 3U);
  EXPECT_EQ(work.flops_count, 2U);
  EXPECT_DOUBLE_EQ(work.flops, 400.0);
  EXPECT_DOUBLE_EQ(work.flops_ms, 3.0);
  EXPECT_EQ(work.bytes_count, 2U);
  EXPECT_DOUBLE_EQ(work.nbytes, 120.0);
  EXPECT_DOUBLE_EQ(work.bytes_ms, 6.0);
}

TEST_F(Work, TakesTheHostsTimeOnOtherClocks) {
  count(worked(100.0, -1.0, 1.0, kCpuClock));
  EXPECT_DOUBLE_EQ(only_row().work.flops_ms, 5.0);
}

TEST_F(Work, OfABodyThatRaisedDoesNotCount) {
  const SampleRef sample = worked(100.0, 100.0, 1.0);
  sample->body_raised = true;
  count(sample);
  EXPECT_EQ(only_row().work.flops_count, 0U);
  EXPECT_EQ(only_row().failed, 1U);
}

TEST_F(Work, IsCopiedToAReplay) {
  const SampleRef captured = worked(100.0, 50.0, 0.0);
  captured->details->wants_memory = true;
  captured->details->memory_read.store(true);
  const SampleRef replay(make_sample());
  copy_details(*captured->details, *replay.get());
  EXPECT_DOUBLE_EQ(replay->details->flops, 100.0);
  EXPECT_DOUBLE_EQ(replay->details->nbytes, 50.0);
  EXPECT_TRUE(replay->details->wants_memory);
  EXPECT_FALSE(replay->details->memory_read.load());
}

TEST_F(Work, OfAReplayNotesThatItsMemoryWasNotRead) {
  const SampleRef replay = worked(100.0, -1.0, 1.0);
  replay->kind = SpanKind::kInsideReplay;
  replay->details->wants_memory = true;
  count(replay);
  EXPECT_EQ(only_row().memory.count, 0U);
  EXPECT_EQ(only_row().memory.note, MemoryNote::kReplay);
}

TEST_F(Work, KeepsTheLargestPeaksAndTheSumOfTheChanges) {
  const SampleRef sample = worked(-1.0, -1.0, 1.0);
  statistics::add_memory(*sample.get(), {10.0, 110.0, 4.0});
  statistics::add_memory(*sample.get(), {30.0, 90.0, -6.0});
  const MemorySums memory = only_row().memory;
  EXPECT_TRUE(memory.asked());
  EXPECT_EQ(memory.count, 2U);
  EXPECT_DOUBLE_EQ(memory.peak, 30.0);
  EXPECT_DOUBLE_EQ(memory.absolute, 110.0);
  EXPECT_DOUBLE_EQ(memory.change, -2.0);
}

TEST_F(Work, KeepsAPeakBesideOneThatIsNotKnown) {
  for (const bool known_first : {true, false}) {
    MemorySums memory;
    const MemoryUse known{10.0, 110.0, 4.0};
    const MemoryUse unknown{kNan, kNan, 4.0, MemoryNote::kNoPeak};
    memory.add(known_first ? known : unknown);
    memory.add(known_first ? unknown : known);
    EXPECT_DOUBLE_EQ(memory.peak, 10.0);
    EXPECT_DOUBLE_EQ(memory.change, 8.0);
    EXPECT_EQ(memory.note, MemoryNote::kNoPeak);
  }
}

TEST_F(Work, CountsNoMemoryThatWasNotRead) {
  const MemoryUse refused{kNan, kNan, kNan, MemoryNote::kRefused};
  MemorySums memory;
  EXPECT_FALSE(memory.asked());
  memory.add(refused);
  EXPECT_TRUE(memory.asked());
  EXPECT_EQ(memory.count, 0U);
  EXPECT_EQ(memory.note, MemoryNote::kRefused);
  for (const MemoryUse& use : {MemoryUse{1.0, 2.0, 3.0}, refused}) {
    memory.add(use);
    EXPECT_EQ(memory.count, 1U);
    EXPECT_EQ(memory.note, MemoryNote::kNone);
    EXPECT_DOUBLE_EQ(memory.change, 3.0);
  }
}

TEST_F(Work, OfAnEarlierEpochIsForgotten) {
  const SampleRef sample = worked(1.0, 1.0, 1.0);
  statistics::reset();
  count(sample);
  statistics::add_memory(*sample.get(), {10.0, 10.0, 10.0});
  EXPECT_TRUE(statistics::rows().empty());
}

TEST_F(Work, OfUnnamedScopesIsNotInTheStatistics) {
  const SampleRef sample = worked(1.0, 1.0, 1.0);
  sample->counted = false;
  statistics::add_memory(*sample.get(), {10.0, 10.0, 10.0});
  EXPECT_TRUE(statistics::rows().empty());
}

}  // namespace
}  // namespace gpuprof::timing
