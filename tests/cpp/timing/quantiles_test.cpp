#include "timing/quantiles.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace gpuprof::timing {
namespace {

constexpr std::array<double, 7> kRanks{0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0};

// Linear interpolation between order statistics, written anew.
double exact_quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double rank = q * static_cast<double>(values.size() - 1);
  const double low = std::floor(rank);
  const double below = values[static_cast<std::size_t>(low)];
  const double above = values[static_cast<std::size_t>(std::ceil(rank))];
  return below + (above - below) * (rank - low);
}

Quantiles quantiles_of(const std::vector<double>& values) {
  Quantiles quantiles;
  for (const double value : values) quantiles.add(value);
  return quantiles;
}

TEST(Quantiles, OfNothingAreNan) {
  Quantiles quantiles;
  EXPECT_EQ(quantiles.count(), 0U);
  EXPECT_TRUE(std::isnan(quantiles.at(0.5)));
}

TEST(Quantiles, GiveTheirBinsBeforeAndAfterTheLimit) {
  EXPECT_TRUE(Quantiles().bin_counts().empty());
  const BinCounts few = quantiles_of({1.0, 2.0, 1.001, 0.0}).bin_counts();
  // 2^0 is the first bin of its octave, the 30th above the lowest.
  EXPECT_EQ(few, (BinCounts{{0U, 1U}, {1920U, 2U}, {1984U, 1U}}));
  Quantiles many;
  for (std::size_t i = 0; i < 2 * Quantiles::kExact; ++i) many.add(i % 2 == 0 ? 1.0 : 2.0);
  EXPECT_FALSE(many.exact());
  EXPECT_EQ(many.bin_counts(), (BinCounts{{1920U, Quantiles::kExact}, {1984U, Quantiles::kExact}}));
}

TEST(Quantiles, FollowValuesAddedAfterAQuestion) {
  Quantiles quantiles = quantiles_of({1.0, 3.0});
  EXPECT_DOUBLE_EQ(quantiles.at(0.5), 2.0);
  quantiles.add(0.5);
  EXPECT_DOUBLE_EQ(quantiles.at(0.5), 1.0);
}

TEST(Quantiles, InterpolateBetweenBins) {
  Quantiles many;
  for (std::size_t i = 0; i < Quantiles::kExact; ++i) many.add(i % 2 == 0 ? 1.0 : 64.0);
  ASSERT_TRUE(many.exact());
  const double exact = many.at(0.5);
  many.add(1.0);
  many.add(64.0);
  ASSERT_FALSE(many.exact());
  EXPECT_NEAR(many.at(0.5), exact, exact / 128);
}

TEST(Quantiles, StayFiniteOutsideTheRangeOfTheBins) {
  Quantiles quantiles;
  for (int i = 0; i < 5000; ++i) quantiles.add(i % 2 == 0 ? 0.0 : 1e12);
  EXPECT_GE(quantiles.at(0.0), 0.0);
  EXPECT_LT(quantiles.at(0.0), 1e-6) << "below a nanosecond, in milliseconds";
  EXPECT_TRUE(std::isfinite(quantiles.at(1.0)));
  EXPECT_GT(quantiles.at(1.0), 1e8);
}

using Draw = std::function<double(std::mt19937_64&)>;

struct Distribution {
  std::string name;
  Draw draw;
};

class QuantilesOf : public testing::TestWithParam<Distribution> {
 protected:
  [[nodiscard]] static std::vector<double> values(std::size_t count, unsigned seed) {
    std::mt19937_64 generator(seed);
    std::vector<double> drawn(count);
    for (double& value : drawn) value = GetParam().draw(generator);
    return drawn;
  }
};

TEST_P(QuantilesOf, AreExactForAnyCountUpToTheLimit) {
  for (const std::size_t count : {1U, 2U, 3U, 10U, 101U, 4095U, 4096U}) {
    const std::vector<double> drawn = values(count, static_cast<unsigned>(count));
    Quantiles quantiles = quantiles_of(drawn);
    for (const double q : kRanks) {
      EXPECT_DOUBLE_EQ(quantiles.at(q), exact_quantile(drawn, q)) << count << " values, q " << q;
    }
  }
}

// Neighbouring ranks may lie far apart, so the answer must be within 1 % of a value between those
// of the ranks on both sides.
TEST_P(QuantilesOf, AreWithinOnePercentBeyondTheLimit) {
  for (const std::size_t count : {4097U, 5000U, 50000U}) {
    std::vector<double> drawn = values(count, static_cast<unsigned>(count) + 1);
    Quantiles quantiles = quantiles_of(drawn);
    std::sort(drawn.begin(), drawn.end());
    for (const double q : kRanks) {
      const double rank = q * static_cast<double>(count - 1);
      const double below = drawn[static_cast<std::size_t>(std::floor(rank))];
      const double above = drawn[static_cast<std::size_t>(std::ceil(rank))];
      EXPECT_GE(quantiles.at(q), below * 0.99) << count << " values, q " << q;
      EXPECT_LE(quantiles.at(q), above * 1.01) << count << " values, q " << q;
    }
  }
}

TEST_P(QuantilesOf, NeverFallAsTheRankRises) {
  for (const std::size_t count : {100U, 10000U}) {
    Quantiles quantiles = quantiles_of(values(count, 7));
    double before = quantiles.at(0.0);
    for (int step = 1; step <= 1000; ++step) {
      const double now = quantiles.at(static_cast<double>(step) / 1000.0);
      EXPECT_GE(now, before) << count << " values, step " << step;
      before = now;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Distributions, QuantilesOf,
    testing::Values(
        Distribution{"Uniform",
                     [](auto& g) { return std::uniform_real_distribution<>(0.5, 2)(g); }},
        Distribution{"LogNormal", [](auto& g) { return std::lognormal_distribution<>(0, 2)(g); }},
        Distribution{"Pareto",
                     [](auto& g) {
                       return 0.01 / std::sqrt(1.0 - std::uniform_real_distribution<>(0, 1)(g));
                     }},
        Distribution{"TwoModes",
                     [](auto& g) {
                       const bool slow = std::bernoulli_distribution(0.2)(g);
                       return std::normal_distribution<>(slow ? 100.0 : 1.0, 0.01)(g);
                     }},
        Distribution{
            "ManyScales",
            [](auto& g) { return std::pow(10.0, std::uniform_real_distribution<>(-5, 8)(g)); }},
        Distribution{"Constant", [](auto&) { return 0.12345; }}),
    [](const auto& given) { return given.param.name; });

}  // namespace
}  // namespace gpuprof::timing
