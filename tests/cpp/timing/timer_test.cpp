#include "timing/timer.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "support/fake.hpp"
#include "timing/cuda_event_clock.hpp"

namespace gpuprof::tests {
namespace {

using driver::Error;
using driver::ErrorKind;
using timing::Timer;

constexpr std::int64_t kMillisecond = 1'000'000;

double read(Timer& timer) {
  double ms = -1.0;
  EXPECT_TRUE(timer.read(timing::monotonic_now() + 10'000'000'000, ms));
  return ms;
}

template <typename Action>
ErrorKind kind_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "no error was thrown";
  return ErrorKind::kUnavailable;
}

class CudaTimer : public OnDevice {
 protected:
  void time(Timer& timer, std::int64_t nanoseconds) {
    timer.start(number(stream_), 0);
    work(stream_, nanoseconds);
    timer.stop();
  }
};

TEST_F(CudaTimer, WaitsOnlyAsLongAsItIsAllowed) {
  Timer timer(timing::kCudaClock);
  Gate gate(*table_, stream_);
  time(timer, kMillisecond);
  double ms = -1.0;
  EXPECT_FALSE(timer.ready());
  EXPECT_FALSE(timer.read(timing::monotonic_now(), ms));
  EXPECT_EQ(ms, 0.0);
  gate.open();
  EXPECT_NEAR(read(timer), 1.0, 0.01);
  EXPECT_TRUE(timer.ready());
}

TEST_F(CudaTimer, StartedAgainUnreadMovesBothMarks) {
  Timer timer(timing::kCudaClock);
  Gate gate(*table_, stream_);
  time(timer, 3 * kMillisecond);
  time(timer, kMillisecond);
  gate.open();
  EXPECT_NEAR(read(timer), 1.0, 0.01);
}

TEST_F(CudaTimer, MovesBetweenThreads) {
  auto timer = std::make_unique<Timer>(timing::kCudaClock);
  time(*timer, kMillisecond);
  std::thread([&] {
    EXPECT_NEAR(read(*timer), 1.0, 0.01);
    timer->start(number(stream_), 0);
    work(stream_, 2 * kMillisecond);
    timer->stop();
  }).join();
  EXPECT_NEAR(read(*timer), 2.0, 0.01);
  std::thread([&] { timer.reset(); }).join();
}

TEST_F(CudaTimer, SaysSoWhereAllPairsAreTaken) {
  std::vector<std::unique_ptr<Timer>> timers;
  for (std::size_t i = 0; i < timing::EventClock::kMaxPairs; ++i) {
    timers.push_back(std::make_unique<Timer>(timing::kCudaClock));
    timers.back()->start(number(stream_), 0);
  }
  Timer one_more(timing::kCudaClock);
  EXPECT_EQ(kind_of([&] { one_more.start(number(stream_), 0); }), ErrorKind::kInvalidState);
  timers.pop_back();
  time(one_more, kMillisecond);
  EXPECT_NEAR(read(one_more), 1.0, 0.01);
}

}  // namespace
}  // namespace gpuprof::tests
