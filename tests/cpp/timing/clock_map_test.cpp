// The map between two clocks against clocks that the test makes up: a GPU that drifts, tells time
// in steps of 32 ns and distances in 32-bit floats, and a host that sees its events late.
#include "timing/clock_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace gpuprof::tests {
namespace {

using timing::ClockMap;
using timing::HostNanoseconds;
using timing::timeline::HostMoment;
using timing::timeline::Placement;

constexpr HostNanoseconds kMicrosecond = 1'000;
constexpr HostNanoseconds kMillisecond = 1'000'000;
constexpr HostNanoseconds kSecond = 1'000'000'000;
constexpr HostNanoseconds kQuarter = kSecond / 4;
constexpr HostNanoseconds kHour = 3600 * kSecond;

// A host's clock that a GPU's drifts away from, and anchors between the two.
class Clocks {
 public:
  explicit Clocks(double drift_ppm) : drift_(drift_ppm * 1e-6) {}

  // From `at` on the GPU's clock runs at another rate.
  void change_drift(HostNanoseconds at, double drift_ppm) {
    gpu_base_ = gpu_exact(at);
    changed_ = at;
    drift_ = drift_ppm * 1e-6;
  }

  // What the GPU's clock says at a moment of the host's.
  [[nodiscard]] std::int64_t gpu(HostNanoseconds host) const {
    const auto ns = static_cast<std::int64_t>(gpu_exact(host));
    return ns - ns % 32;
  }

  // What the driver says of two moments.
  [[nodiscard]] float elapsed_ms(HostNanoseconds from, HostNanoseconds to) const {
    return static_cast<float>(static_cast<double>(gpu(to) - gpu(from)) / 1e6);
  }

  // An anchor at `at`, in a bracket as an idle GPU gives it, or one that reaches further back.
  void anchor(HostNanoseconds at, HostNanoseconds held_up = 0) {
    const HostNanoseconds before = at - 2'400 - random(700) - held_up;
    const HostNanoseconds after = at + 2'300 + random(1'200);
    middle = (before + after) / 2;
    map.add(anchors.empty() ? 0.0F : elapsed_ms(anchors.back(), at), before, after);
    anchors.push_back(at);
  }

  // Where the map has the moment `at`, measured from anchor `number` (from 1).
  Placement place(HostNanoseconds at, std::size_t number, HostMoment& moment) const {
    const auto ms = static_cast<double>(elapsed_ms(anchors[number - 1], at));
    return map.place(static_cast<std::uint32_t>(number), ms, moment);
  }

  std::int64_t random(std::int64_t below) {
    random_ = random_ * 6364136223846793005U + 1442695040888963407U;  // Knuth's, always the same
    return static_cast<std::int64_t>((random_ >> 33U) % static_cast<std::uint64_t>(below));
  }

  ClockMap map;
  std::vector<HostNanoseconds> anchors;
  HostNanoseconds middle = 0;  // of the newest anchor's bracket

 private:
  [[nodiscard]] double gpu_exact(HostNanoseconds host) const {
    return gpu_base_ + static_cast<double>(host - changed_) * (1 + drift_);
  }

  double drift_;
  double gpu_base_ = 5e9;
  HostNanoseconds changed_ = 0;
  std::uint64_t random_ = 7;
};

TEST(ClockMap, PlacesWithinThreeMicrosecondsForAnHourAndWithinWhatItStates) {
  Clocks clocks(9.1);
  clocks.anchor(kSecond);
  for (HostNanoseconds at = kSecond; at < kHour; at += kQuarter) {
    clocks.anchor(at + kQuarter);
    const HostNanoseconds truth = at + clocks.random(kQuarter);
    HostMoment found;
    ASSERT_EQ(clocks.place(truth, clocks.anchors.size() - 1, found), Placement::kPlaced);
    ASSERT_LE(std::abs(found.at - truth), 3 * kMicrosecond) << "after " << at << " ns";
    ASSERT_LE(std::abs(found.at - truth), found.error) << "after " << at << " ns";
    ASSERT_LE(found.error, 3'400) << "after " << at << " ns";
  }
}

TEST(ClockMap, DriftAddsLittleToTheErrorAfterAnHour) {
  Clocks steady(0.0);
  Clocks drifting(9.1);  // the same noise
  steady.anchor(kSecond);
  drifting.anchor(kSecond);
  for (HostNanoseconds at = kSecond; at < kHour; at += kQuarter) {
    steady.anchor(at + kQuarter);
    drifting.anchor(at + kQuarter);
    const HostNanoseconds truth = at + kQuarter / 3;
    HostMoment expected;
    HostMoment found;
    steady.place(truth, steady.anchors.size() - 1, expected);
    ASSERT_EQ(drifting.place(truth, drifting.anchors.size() - 1, found), Placement::kPlaced);
    ASSERT_LE(std::abs(found.at - expected.at), 300) << "after " << at << " ns";
  }
}

TEST(ClockMap, TheBracketsOfSecondsTogetherSayMoreThanEachAlone) {
  Clocks clocks(9.1);
  HostNanoseconds alone = 0;
  HostNanoseconds together = 0;
  for (int i = 1; i <= 2'000; ++i) {
    clocks.anchor(i * kQuarter, clocks.random(10 * kMicrosecond));
    if (i < 20) continue;
    const HostNanoseconds truth = clocks.anchors.back();
    HostMoment found;
    ASSERT_EQ(clocks.place(truth, clocks.anchors.size(), found), Placement::kPlaced);
    alone += std::abs(clocks.middle - truth);
    together += std::abs(found.at - truth);
  }
  EXPECT_LT(together, alone / 2);
}

TEST(ClockMap, AMomentAfterTheNewestAnchorHasToWaitForTheNext) {
  Clocks clocks(9.1);
  HostMoment found{-1, -1};
  clocks.anchor(kSecond);
  EXPECT_EQ(clocks.place(kSecond, 1, found), Placement::kNotYet) << "one anchor is no line";
  clocks.anchor(2 * kSecond);
  EXPECT_EQ(clocks.place(2 * kSecond + 1 * kMillisecond, 2, found), Placement::kNotYet);
  EXPECT_EQ(found.at, -1) << "only a placed moment is written";
  EXPECT_EQ(clocks.place(2 * kSecond, 2, found), Placement::kPlaced);
  EXPECT_EQ(clocks.place(kSecond, 1, found), Placement::kPlaced);
  clocks.anchor(3 * kSecond);
  EXPECT_EQ(clocks.place(2 * kSecond + 1 * kMillisecond, 2, found), Placement::kPlaced);
}

TEST(ClockMap, AnAnchorThatWasHeldUpByOtherWorkSpoilsNothing) {
  Clocks clocks(9.1);
  for (int i = 1; i <= 40; ++i) clocks.anchor(i * kQuarter, i == 20 ? 15 * kMillisecond : 0);
  for (std::size_t number = 18; number <= 21; ++number) {
    const HostNanoseconds truth = clocks.anchors[number - 1] + kQuarter / 2;
    HostMoment found;
    ASSERT_EQ(clocks.place(truth, number, found), Placement::kPlaced);
    EXPECT_LE(std::abs(found.at - truth), 4 * kMicrosecond) << number;
    EXPECT_LE(std::abs(found.at - truth), found.error) << number;
    EXPECT_LE(found.error, 6 * kMicrosecond) << number;
  }
}

TEST(ClockMap, StatesAnErrorThatHoldsWhereAllAnchorsAreHeldUp) {
  Clocks clocks(9.1);
  for (int i = 1; i <= 200; ++i) clocks.anchor(i * kQuarter, clocks.random(400 * kMicrosecond));
  for (std::size_t number = 1; number < 200; ++number) {
    const HostNanoseconds truth = clocks.anchors[number - 1] + kQuarter / 2;
    HostMoment found;
    ASSERT_EQ(clocks.place(truth, number, found), Placement::kPlaced);
    EXPECT_LE(std::abs(found.at - truth), found.error) << number;
  }
}

TEST(ClockMap, AChangeOfTheDriftStaysWithinTheStatedError) {
  Clocks clocks(9.1);
  for (int i = 1; i <= 80; ++i) {
    if (i == 40) clocks.change_drift(i * kQuarter, 12.0);
    if (i == 60) clocks.change_drift(i * kQuarter, -40.0);
    clocks.anchor(i * kQuarter);
    if (i == 1 || i == 40 || i == 60) continue;
    const HostNanoseconds truth = clocks.anchors.back() - kQuarter / 2;
    HostMoment found;
    ASSERT_EQ(clocks.place(truth, clocks.anchors.size() - 1, found), Placement::kPlaced);
    EXPECT_LE(std::abs(found.at - truth), found.error) << i;
  }
}

TEST(ClockMap, APauseOfAMinuteWidensTheStatedErrorAndNoMore) {
  Clocks clocks(9.1);
  for (int i = 1; i <= 8; ++i) clocks.anchor(i * kQuarter);
  const HostNanoseconds pause = clocks.anchors.back();
  clocks.anchor(pause + 60 * kSecond);
  clocks.anchor(pause + 60 * kSecond + kQuarter);
  const auto check = [&](HostNanoseconds truth, std::size_t number, HostNanoseconds most) {
    HostMoment found;
    ASSERT_EQ(clocks.place(truth, number, found), Placement::kPlaced);
    EXPECT_LE(std::abs(found.at - truth), found.error);
    EXPECT_LE(found.error, most);
  };
  check(pause + kSecond, 8, 4 * kMicrosecond);
  check(pause + 30 * kSecond, 8, 10 * kMicrosecond);
  check(pause + 59 * kSecond, 9, 4 * kMicrosecond);
  check(pause + 60 * kSecond + kQuarter / 2, 9, 3 * kMicrosecond + 100);
}

TEST(ClockMap, AMomentBeforeTheOldestAnchorIsPlacedWithAnHonestError) {
  Clocks clocks(9.1);
  const HostNanoseconds truth = 5 * kSecond;
  clocks.anchor(10 * kSecond);
  HostNanoseconds last_error = kSecond;
  for (int i = 1; i <= 400; ++i) {
    clocks.anchor(10 * kSecond + i * kQuarter);
    HostMoment found;
    ASSERT_EQ(clocks.place(truth, 1, found), Placement::kPlaced);
    EXPECT_LE(std::abs(found.at - truth), found.error) << i;
    if (i % 40 == 0) {
      EXPECT_LT(found.error, last_error) << "the drift is known better and better";
      last_error = found.error;
    }
  }
  EXPECT_LE(last_error, 5 * kMicrosecond);
}

TEST(ClockMap, KeepsTheOrderOfMomentsWheneverTheyArePlaced) {
  Clocks clocks(9.1);
  std::vector<std::pair<HostNanoseconds, HostNanoseconds>> placed;  // truth, found
  for (int i = 1; i <= 60; ++i) {
    clocks.anchor(i * kQuarter, clocks.random(100 * kMicrosecond));
    if (i < 4) continue;
    // Moments a microsecond apart, placed three anchors apart.
    for (const std::size_t back : {1U, 3U}) {
      const HostNanoseconds truth =
          clocks.anchors[clocks.anchors.size() - 1 - back] + kMillisecond + (back == 1 ? 0 : 1'000);
      HostMoment found;
      ASSERT_EQ(clocks.place(truth, clocks.anchors.size() - back, found), Placement::kPlaced);
      placed.emplace_back(truth, found.at);
    }
  }
  std::sort(placed.begin(), placed.end());
  for (std::size_t i = 1; i < placed.size(); ++i) {
    EXPECT_LT(placed[i - 1].second, placed[i].second) << "at " << placed[i].first;
  }
}

TEST(ClockMap, FindsTheAnchorNearestToAMoment) {
  Clocks clocks(0.0);
  for (int i = 1; i <= 5; ++i) clocks.anchor(i * kSecond);
  EXPECT_EQ(clocks.map.nearest(1, -500.0), 1U);
  EXPECT_EQ(clocks.map.nearest(1, 400.0), 1U);
  EXPECT_EQ(clocks.map.nearest(1, 600.0), 2U);
  EXPECT_EQ(clocks.map.nearest(4, -1'900.0), 2U);
  EXPECT_EQ(clocks.map.nearest(1, 90'000.0), 5U);
}

TEST(ClockMap, ForgetsOldAnchorsAndCountsOn) {
  Clocks clocks(9.1);
  HostMoment found;
  EXPECT_EQ(clocks.map.newest(), 0U);
  for (int i = 1; i <= 10; ++i) clocks.anchor(i * kSecond);
  EXPECT_EQ(clocks.map.newest(), 10U);
  clocks.map.forget_before(5 * kSecond);
  EXPECT_EQ(clocks.map.oldest(), 5U);
  EXPECT_EQ(clocks.place(4 * kSecond, 4, found), Placement::kLost);
  EXPECT_EQ(clocks.place(6 * kSecond, 6, found), Placement::kPlaced);
  EXPECT_LE(std::abs(found.at - 6 * kSecond), found.error);
  clocks.map.forget_before(kHour);
  EXPECT_EQ(clocks.map.oldest(), 10U) << "the newest stays";
  clocks.map.clear();
  EXPECT_EQ(clocks.map.newest(), 0U);
  EXPECT_EQ(clocks.place(10 * kSecond, 10, found), Placement::kLost);
  clocks.anchor(20 * kSecond);
  clocks.anchor(21 * kSecond);
  EXPECT_EQ(clocks.map.newest(), 12U);
  EXPECT_EQ(clocks.place(20 * kSecond + kMillisecond, 11, found), Placement::kPlaced);
  EXPECT_EQ(clocks.map.place(0, 0.0, found), Placement::kLost);
  EXPECT_EQ(clocks.map.place(13, 0.0, found), Placement::kLost);
}

TEST(ClockMap, AnchorsAtOneMomentOfTheGpusClockPlaceTimes) {
  ClockMap map;
  map.add(0.0F, 1000, 1100);
  map.add(0.0F, 1200, 1300);
  map.add(0.0F, 1400, 1500);
  for (const double ms : {-1e-6, 0.0, 1e-5}) {
    HostMoment moment;
    ASSERT_EQ(map.place(map.oldest(), ms, moment), Placement::kPlaced) << ms;
    EXPECT_NEAR(static_cast<double>(moment.at), 1250.0, 400.0) << ms;
    EXPECT_GE(moment.error, 0) << ms;
  }
}

}  // namespace
}  // namespace gpuprof::tests
