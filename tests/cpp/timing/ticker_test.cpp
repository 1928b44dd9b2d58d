#include "timing/ticker.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace gpuprof::timing {
namespace {

using namespace std::chrono_literals;

void wait_for(const std::atomic<int>& count, int least) {
  while (count.load() < least) std::this_thread::sleep_for(1ms);
}

TEST(Ticker, ASlotHasOneCallAtMostAndTheFirstNone) {
  std::atomic<int> count{0};
  const HostNanoseconds begun = monotonic_now();
  {
    const Ticker ticker("test", [&] {
      // As many as there were slots, also where one has taken several of them.
      EXPECT_LE((count.load() + 1) * Ticker::kSlot, monotonic_now() - begun);
      if (count == 0) std::this_thread::sleep_for(60ms);
      ++count;
      return true;
    });
    wait_for(count, 20);
  }
  EXPECT_GE(monotonic_now() - begun, 24 * Ticker::kSlot);
}

TEST(Ticker, ACallThatIsFalseIsTheLast) {
  std::atomic<int> count{0};
  {
    const Ticker ticker("test", [&] {
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
    const Ticker ticker("test", [&] {
      ++count;
      return true;
    });
  }
  EXPECT_LE(count.load(), 100);
}

}  // namespace
}  // namespace gpuprof::timing
