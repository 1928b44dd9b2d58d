// Which slices share a track.
#include "trace/lanes.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace gpuprof::trace {
namespace {

bool fits(Lane& lane, Lane::Time begin, Lane::Time end, std::uint16_t depth = kUnknownDepth) {
  std::uint64_t line = 0;
  return lane.add(begin, end, depth, line);
}

TEST(Lane, TakesThemInTheOrderOfTheirBeginnings) {
  Lane lane;
  EXPECT_TRUE(fits(lane, 0, 100));
  EXPECT_TRUE(fits(lane, 10, 50));
  EXPECT_TRUE(fits(lane, 10, 20));
  EXPECT_TRUE(fits(lane, 20, 50));
  EXPECT_TRUE(fits(lane, 60, 70));
  EXPECT_FALSE(fits(lane, 65, 75));
  EXPECT_FALSE(fits(lane, 90, 110));
}

TEST(Lane, RefusesWhatItCannotTell) {
  Lane lane;
  EXPECT_TRUE(fits(lane, 5, 6));
  EXPECT_TRUE(fits(lane, 0, 10));
  EXPECT_FALSE(fits(lane, 4, 8));  // would cross what is inside
  EXPECT_TRUE(fits(lane, 12, 14));
  EXPECT_TRUE(fits(lane, 20, 30));
  EXPECT_TRUE(fits(lane, 15, 18));  // late, in a gap
}

TEST(Lane, StretchesASliceThatEndsALittleTooEarly) {
  Lane lane;
  EXPECT_TRUE(fits(lane, 10, 100));
  Lane::Time end = 97;
  std::uint64_t line = 0;
  EXPECT_FALSE(lane.add(5, end, 0, line, 2));
  EXPECT_EQ(end, 97);
  EXPECT_TRUE(lane.add(5, end, 0, line, 3));
  EXPECT_EQ(end, 100);
}

TEST(Lane, NeedsNoMoreMemoryThanSlicesAreDeep) {
  Lane lane;
  Lane::Time now = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    const Lane::Time begun = now;
    for (int step = 0; step < 20'000; ++step) {
      ASSERT_TRUE(fits(lane, now, now + 5, 2));
      ASSERT_TRUE(fits(lane, now, now + 8, 1));
      now += 10;
      ASSERT_LE(lane.size(), 8U);
    }
    ASSERT_TRUE(fits(lane, begun, now, 0));
  }
}

TEST(Lane, IsBoundedWithoutDepths) {
  Lane lane;
  for (Lane::Time now = 0; now < 1'000'000; now += 10) ASSERT_TRUE(fits(lane, now, now + 5));
  EXPECT_LE(lane.size(), 2 * Lane::kMost);
  EXPECT_TRUE(fits(lane, -1, 2'000'000));
}

// Whatever it is given, what it took nests: checked against all pairs.
TEST(Lane, NeverTakesTwoThatCross) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    Lane lane;
    std::vector<std::pair<Lane::Time, Lane::Time>> taken;
    std::uniform_int_distribution<int> time(0, 60);
    std::uniform_int_distribution<int> depth(0, 3);
    for (int i = 0; i < 40; ++i) {
      Lane::Time begin = time(random);
      Lane::Time end = time(random);
      if (end < begin) std::swap(begin, end);
      const bool known = round % 2 == 0;
      const auto level = static_cast<std::uint16_t>(known ? depth(random) : kUnknownDepth);
      std::uint64_t line = 0;
      if (lane.add(begin, end, level, line, round % 3)) taken.emplace_back(begin, end);
    }
    for (const auto& [b1, e1] : taken) {
      for (const auto& [b2, e2] : taken) {
        EXPECT_FALSE(b1 < b2 && b2 < e1 && e1 < e2) << b1 << "-" << e1 << " " << b2 << "-" << e2;
      }
    }
  }
}

}  // namespace
}  // namespace gpuprof::trace
