#include "timing/ticker.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace gpuprof::timing {
namespace {

using namespace std::chrono_literals;

void wait_for(const std::atomic<int>& count, int least) {
  while (count.load() < least) std::this_thread::sleep_for(1ms);
}

TEST(Ticker, ItsCallsStandForAllOfTheTime) {
  std::atomic<int> count{0};
  std::atomic<HostNanoseconds> sum{0};
  const HostNanoseconds begun = monotonic_now();
  {
    const Ticker ticker("test", [&](HostNanoseconds ns) {
      EXPECT_GT(ns, 0);
      EXPECT_EQ(ns % Ticker::kSlot, 0);
      sum += ns;
      ++count;
      return true;
    });
    wait_for(count, 20);
  }
  EXPECT_LE(sum.load(), monotonic_now() - begun + Ticker::kSlot);
  EXPECT_GE(sum.load(), 20 * Ticker::kSlot);
}

TEST(Ticker, ACallThatIsLateStandsForTheSlotsThatItMissed) {
  std::atomic<int> count{0};
  std::vector<HostNanoseconds> stood;  // of the ticker's thread, until it has ended
  {
    const Ticker ticker("test", [&](HostNanoseconds ns) {
      stood.push_back(ns);
      if (count == 0) std::this_thread::sleep_for(60ms);
      return ++count < 3;
    });
    wait_for(count, 3);
  }
  ASSERT_EQ(stood.size(), 3U);
  EXPECT_GE(stood[1], 4 * Ticker::kSlot);
}

TEST(Ticker, ACallThatIsFalseIsTheLast) {
  std::atomic<int> count{0};
  {
    const Ticker ticker("test", [&](HostNanoseconds /*ns*/) {
      ++count;
      return false;
    });
    wait_for(count, 1);
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_EQ(count.load(), 1);
}

TEST(Ticker, ItEndsAtOnceWhereNoCallIsUnderWay) {
  std::atomic<int> count{0};
  for (int i = 0; i < 50; ++i) {
    const Ticker ticker("test", [&](HostNanoseconds /*ns*/) {
      ++count;
      return true;
    });
  }
  EXPECT_LE(count.load(), 100);
}

}  // namespace
}  // namespace gpuprof::timing
