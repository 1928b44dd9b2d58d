// The counter of instructions: on a machine that has none, the same through the clock of the task.
#include "timing/instructions.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <thread>
#include <vector>

namespace {

using gpuprof::timing::CounterEvent;
using gpuprof::timing::CounterReading;
using gpuprof::timing::InstructionCounter;

std::uint64_t work(int steps) {
  volatile std::uint64_t total = 0;
  for (int step = 0; step < steps; ++step) total = total + static_cast<std::uint64_t>(step);
  return total;
}

std::uint64_t counted(const InstructionCounter& counter, int steps) {
  CounterReading before, after;
  EXPECT_EQ(counter.read(before), 0);
  work(steps);
  EXPECT_EQ(counter.read(after), 0);
  EXPECT_GE(after.enabled_ns, before.enabled_ns);
  return after.value - before.value;
}

#define SKIP_WITHOUT(counter) \
  if ((counter).error() != 0) GTEST_SKIP() << "not allowed here: errno " << (counter).error()

TEST(Instructions, ACounterIsOpenOrSaysWhyNot) {
  const InstructionCounter counter;
  CounterReading reading;
  EXPECT_EQ(counter.read(reading), counter.error());
}

TEST(Instructions, MoreWorkTakesMoreInstructions) {
  const InstructionCounter counter;
  SKIP_WITHOUT(counter);
  const auto few = counted(counter, 10'000);
  const auto many = counted(counter, 100'000);
  EXPECT_GT(few, 10'000U);
  EXPECT_GT(many, 5 * few);
}

TEST(Instructions, TheTaskClockGoesOnWhileItWorks) {
  const InstructionCounter counter(CounterEvent::kTaskClock);
  SKIP_WITHOUT(counter);
  EXPECT_GT(counted(counter, 1'000'000), 0U);
}

TEST(Instructions, ThreadsThatAreStartedCountToo) {
  const InstructionCounter counter(CounterEvent::kTaskClock);
  SKIP_WITHOUT(counter);
  CounterReading before, after;
  ASSERT_EQ(counter.read(before), 0);
  std::vector<std::thread> threads;
  for (int each = 0; each < 2; ++each) threads.emplace_back([] { work(20'000'000); });
  for (auto& each : threads) each.join();
  ASSERT_EQ(counter.read(after), 0);
  // This thread has only waited: what was counted is the others' work.
  EXPECT_GT(after.value - before.value, 1'000'000U);
}

TEST(Instructions, AClosedCounterCannotBeRead) {
  InstructionCounter counter(CounterEvent::kTaskClock);
  SKIP_WITHOUT(counter);
  counter.close();
  counter.close();
  CounterReading reading;
  EXPECT_EQ(counter.read(reading), EBADF);
}

}  // namespace
