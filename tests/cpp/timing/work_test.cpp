#include "timing/work.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "timing/sample.hpp"

namespace gpuprof::timing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Work, IsMadeWhenItIsFirstAskedForAndGoesWithTheSample) {
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

TEST(Work, OfAReplayWantsMemoryThatWasNotReadYet) {
  const SampleRef captured(make_sample());
  const SampleRef replay(make_sample());
  details_of(*captured.get()).wants_memory = true;
  captured->details->memory_read.store(true);
  copy_details(*captured->details, *replay.get());
  EXPECT_TRUE(replay->details->wants_memory);
  EXPECT_FALSE(replay->details->memory_read.load());
}

TEST(Work, KeepsAPeakBesideOneThatIsNotKnown) {
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

TEST(Work, CountsNoMemoryThatWasNotRead) {
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

}  // namespace
}  // namespace gpuprof::timing
