#include "timing/budget.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "timing/statistics.hpp"

namespace gpuprof::timing {
namespace {

constexpr double kSecond = 1e9;

// A program in virtual time: measuring a visit takes `cost` besides what the visit takes.
class Program {
 public:
  Program(double share, std::uint64_t seed) {
    budget.seed(seed);
    budget.set_share(share, 0);
  }

  // Returns the weight of the visit.
  std::uint32_t visit(Visits& path, double body_ns, double cost_ns) {
    const std::uint32_t weight = budget.decide(path);
    if (weight != 0) {
      now += cost_ns;
      cost += cost_ns;
      budget.charge(path, cost_ns, true, static_cast<HostNanoseconds>(now));
    } else if (Budget::looks(path)) {
      budget.look(static_cast<HostNanoseconds>(now));
    }
    now += body_ns;
    return weight;
  }

  Budget budget;
  double now = 0.0;
  double cost = 0.0;
};

TEST(Budget, IsKeptByALoopOfVeryShortScopesFromTheFirstSecondOn) {
  for (const double share : {0.001, 0.01, 0.05}) {
    Program program(share, 1);
    Visits path;
    for (int second = 1; second <= 4; ++second) {
      const double before = program.cost;
      while (program.now < second * kSecond) program.visit(path, 200.0, 1000.0);
      EXPECT_LE(program.cost - before, 1.2 * share * kSecond) << share << ", second " << second;
      EXPECT_GE(program.cost - before, 0.7 * share * kSecond) << share << ", second " << second;
    }
  }
}

TEST(Budget, MeasuresEveryVisitWhereThatFits) {
  Program program(0.01, 1);
  Visits path;
  for (int i = 0; i < 5000; ++i) EXPECT_EQ(program.visit(path, 1e6, 1000.0), 1U);
}

TEST(Budget, FollowsTheLoadUpAndDown) {
  Program program(0.01, 1);
  Visits path;
  const auto run = [&](double body, double until) {
    while (program.now < until * kSecond) program.visit(path, body, 1000.0);
  };
  run(200.0, 3.0);
  EXPECT_GT(path.one_in, 200U);
  run(1e6, 6.0);
  EXPECT_EQ(path.one_in, 1U);
  const double before = program.cost;
  run(200.0, 7.0);
  EXPECT_LE(program.cost - before, 0.012 * kSecond);
}

TEST(Budget, SeesWithinSecondsThatAHotPathHasBecomeRare) {
  Program program(0.01, 1);
  Visits path;
  while (program.now < 3 * kSecond) program.visit(path, 200.0, 1000.0);
  for (int i = 0; i < 16; ++i) program.visit(path, kSecond, 1000.0);
  EXPECT_EQ(path.one_in, 1U);
}

TEST(Budget, IsSharedSoThatARarePathIsMeasuredBesideAHotOne) {
  Program program(0.01, 1);
  Visits hot;
  Visits rare;
  int rare_measured = 0;
  int rare_visits = 0;
  while (program.now < 5 * kSecond) {
    for (int i = 0; i < 1000; ++i) program.visit(hot, 1000.0, 1000.0);
    rare_measured += program.visit(rare, 1000.0, 1000.0) != 0 ? 1 : 0;
    ++rare_visits;
  }
  EXPECT_EQ(rare_measured, rare_visits);
  EXPECT_LE(program.cost, 0.012 * 5 * kSecond);
}

TEST(Budget, MeasuresTheFirstVisitsAgainAfterAReset) {
  Program program(1e-6, 1);
  Visits path;
  for (int i = 0; i < 100'000; ++i) program.visit(path, 200.0, 1000.0);
  program.budget.begin_anew();
  for (std::uint32_t i = 0; i < Visits::kFirst; ++i) {
    EXPECT_EQ(program.visit(path, 200.0, 1000.0), 1U);
  }
}

// What visit number i takes, in ms.
struct Load {
  std::string name;
  std::function<double(std::uint64_t, std::mt19937_64&)> body_ms;
  int children = 0;  // visits inside each visit
};

double uniform(std::mt19937_64& random) { return std::uniform_real_distribution<>()(random); }

const std::vector<Load>& loads() {
  static const std::vector<Load> all{
      {"constant", [](auto, auto&) { return 0.001; }},
      {"bimodal", [](auto, auto& r) { return uniform(r) < 0.7 ? 0.001 : 0.004; }},
      {"period_of_32", [](auto i, auto&) { return i % 32 == 0 ? 0.02 : 0.001; }},
      {"alternating", [](auto i, auto&) { return i % 2 == 0 ? 0.001 : 0.003; }},
      {"drifting", [](auto i, auto&) { return 0.001 + 1e-8 * static_cast<double>(i); }},
      {"bursts", [](auto i, auto&) { return i / 5000 % 4 == 0 ? 0.0005 : 0.004; }},
      {"heavy_tail",
       [](auto, auto& r) { return std::min(0.001 * std::pow(1.0 - uniform(r), -0.4), 1.0); }},
      {"rare_slow", [](auto, auto& r) { return uniform(r) < 0.002 ? 0.2 : 0.001; }},
      {"changing_rate",
       [](auto i, auto&) { return 0.0005 * (2.0 + std::sin(static_cast<double>(i) / 9000.0)); }},
      {"nested", [](auto, auto& r) { return 0.001 * (1.0 + uniform(r)); }, 4},
  };
  return all;
}

class BudgetOf : public testing::TestWithParam<Load> {};

// Runs of one load, each with its own seed, through the policy and the statistics.
TEST_P(BudgetOf, HasUnbiasedFiguresAndIntervalsThatHoldInNineteenOfTwentyRuns) {
  constexpr int kRuns = 100;
  constexpr std::uint64_t kVisits = 60'000;
  const Load& load = GetParam();
  const Path& path = path_below(root_path(), "budget of " + load.name);
  int within = 0;
  double error = 0.0;
  double true_total = 0.0;
  std::array<double, 3> ranks_below{};
  constexpr std::array<double, 3> kRanks{0.5, 0.9, 0.99};
  for (int run = 0; run < kRuns; ++run) {
    statistics::reset();
    std::mt19937_64 random(static_cast<unsigned>(run));
    Program program(0.1, static_cast<std::uint64_t>(run) + 1);
    Visits outer;
    std::vector<double> truth;
    std::uint64_t left_out = 0;
    const auto see = [&](std::uint32_t weight, std::uint32_t draw, double ms) {
      truth.push_back(ms);
      if (weight == 0) {
        ++left_out;
        return;
      }
      const SampleRef sample(make_sample());
      sample->path = &path;
      sample->epoch = statistics::epoch();
      sample->weight = weight;
      sample->draw = draw;
      sample->host_begin = 1;
      sample->host_end = 1 + static_cast<HostNanoseconds>(ms * 1e6);
      sample->finish(SampleStatus::kDone);
      const Sample* raw = sample.get();
      statistics::add(&raw, 1);
    };
    for (std::uint64_t i = 0; i < kVisits / (load.children + 1U); ++i) {
      double ms = load.body_ms(i, random);
      const std::uint32_t weight = program.visit(outer, ms * 1e6, 500.0 * (load.children + 1));
      const std::uint32_t draw = weight > 1 ? program.budget.next_draw() : 0;
      if (load.children == 0) see(weight, draw, ms);
      for (int child = 0; child < load.children; ++child) {
        see(weight, draw, ms * (1.0 + 0.1 * uniform(random)));
      }
    }
    statistics::add_left_out(path, kCpuClock, left_out, 0);
    const std::vector<Row> rows = statistics::rows();
    ASSERT_EQ(rows.size(), 1U);
    const Summary& host = rows[0].host;
    ASSERT_EQ(host.count, truth.size());
    ASSERT_LT(host.measured, truth.size() / 2) << "too few were left out to test anything";
    double total = 0.0;
    for (const double ms : truth) total += std::floor(ms * 1e6) / 1e6;
    within += std::abs(host.total - total) <= host.margin + 1e-9 * total ? 1 : 0;
    error += host.total - total;
    true_total += total;
    const std::array<double, 3> found{host.p50, host.p90, host.p99};
    for (std::size_t q = 0; q < 3; ++q) {  // how far its rank is off, but for ties and bins
      const double at_most = static_cast<double>(std::count_if(
          truth.begin(), truth.end(), [&](double ms) { return ms <= found[q] * 1.01; }));
      const double at_least = static_cast<double>(std::count_if(
          truth.begin(), truth.end(), [&](double ms) { return ms < found[q] * 0.99; }));
      const auto count = static_cast<double>(truth.size());
      ranks_below[q] += std::clamp(kRanks[q], at_least / count, at_most / count) - kRanks[q];
    }
  }
  statistics::reset();
  EXPECT_NEAR(error / true_total, 0.0, 0.01);
  // A normal interval holds less often where a few visits make up much of the total.
  EXPECT_GE(within, load.name == "heavy_tail" || load.name == "rare_slow" ? 75 : 88);
  for (std::size_t q = 0; q < 3; ++q) {
    EXPECT_NEAR(ranks_below[q] / kRuns, 0.0, 0.006) << "p" << 100 * kRanks[q];
  }
}

INSTANTIATE_TEST_SUITE_P(Loads, BudgetOf, testing::ValuesIn(loads()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace gpuprof::timing
