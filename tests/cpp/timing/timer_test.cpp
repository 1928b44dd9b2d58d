#include "timing/timer.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
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

timing::HostNanoseconds host_time = 0;

// The host's clock stands still unless a test moves it.
class HostTimer : public testing::Test {
 protected:
  void SetUp() override {
    host_time = 0;
    timing::host_clock = +[]() noexcept { return host_time; };
  }
  void TearDown() override { timing::host_clock = &timing::monotonic_now; }

  Timer timer_{timing::kCpuClock};
};

TEST_F(HostTimer, ReadsTheTimeBetweenItsMarks) {
  timer_.start(0, 0);
  host_time += 3 * kMillisecond;
  timer_.stop();
  EXPECT_TRUE(timer_.ready());
  EXPECT_DOUBLE_EQ(read(timer_), 3.0);
}

TEST_F(HostTimer, IsZeroAndNotReadyWhileAMarkIsMissing) {
  EXPECT_FALSE(timer_.ready());
  EXPECT_EQ(read(timer_), 0.0);
  timer_.start(0, 0);
  host_time += kMillisecond;
  EXPECT_FALSE(timer_.ready());
  EXPECT_EQ(read(timer_), 0.0);
}

TEST_F(HostTimer, ANewStartForgetsTheOldEnd) {
  timer_.start(0, 0);
  timer_.stop();
  timer_.start(0, 0);
  EXPECT_FALSE(timer_.ready());
  EXPECT_EQ(read(timer_), 0.0);
}

TEST_F(HostTimer, AStopMayBeMovedOn) {
  timer_.start(0, 0);
  host_time += kMillisecond;
  timer_.stop();
  host_time += kMillisecond;
  timer_.stop();
  EXPECT_DOUBLE_EQ(read(timer_), 2.0);
}

TEST_F(HostTimer, RefusesAStopBeforeAStart) {
  EXPECT_EQ(kind_of([&] { timer_.stop(); }), ErrorKind::kInvalidState);
}

TEST_F(HostTimer, RefusesEverythingOnceClosed) {
  timer_.start(0, 0);
  timer_.close();
  timer_.close();
  double ms = 0.0;
  EXPECT_TRUE(timer_.closed());
  EXPECT_FALSE(timer_.ready());
  EXPECT_EQ(kind_of([&] { timer_.start(0, 0); }), ErrorKind::kInvalidState);
  EXPECT_EQ(kind_of([&] { timer_.stop(); }), ErrorKind::kInvalidState);
  EXPECT_EQ(kind_of([&] { timer_.read(0, ms); }), ErrorKind::kInvalidState);
}

TEST_F(HostTimer, StaysOutOfTheStatistics) {
  timing::statistics::reset();
  timer_.start(0, 0);
  timer_.stop();
  EXPECT_TRUE(timing::statistics::rows().empty());
}

class CudaTimer : public OnDevice {
 protected:
  void time(Timer& timer, std::int64_t nanoseconds) {
    timer.start(number(stream_), 0);
    work(stream_, nanoseconds);
    timer.stop();
  }
};

TEST_F(CudaTimer, ReadsTheTimeOfItsStream) {
  Timer timer(timing::kCudaClock);
  time(timer, 2 * kMillisecond);
  EXPECT_NEAR(read(timer), 2.0, 0.01);
  EXPECT_NEAR(read(timer), 2.0, 0.01) << "a second reading is the same";
}

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

TEST_F(CudaTimer, UsesOnePairOfEventsForItsLife) {
  Timer timer(timing::kCudaClock);
  time(timer, kMillisecond);
  const void* const start = timer.sample()->start;
  const std::uint64_t made = calls_of("cuEventCreate");
  for (int i = 1; i <= 50; ++i) {
    time(timer, i * kMillisecond / 100);
    EXPECT_NEAR(read(timer), i * 0.01, 0.01);
  }
  EXPECT_EQ(timer.sample()->start, start);
  EXPECT_EQ(calls_of("cuEventCreate"), made);
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

TEST_F(CudaTimer, GivesItsEventsBackWhenItDies) {
  {
    Timer unused(timing::kCudaClock);
  }
  EXPECT_EQ(live("event"), 0);
  {
    Timer timer(timing::kCudaClock);
    time(timer, kMillisecond);
    EXPECT_EQ(timing::device::release_idle(), 1U);
  }
  EXPECT_EQ(timing::device::release_idle(), 0U);
  EXPECT_EQ(live("event"), 0);
}

TEST_F(CudaTimer, ARefusedRecordIsThrownWithCodeAndCall) {
  Timer timer(timing::kCudaClock);
  script("cuEventRecord@1=1");
  try {
    timer.start(number(stream_), 0);
    ADD_FAILURE() << "the start was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCuda);
    EXPECT_EQ(error.code(), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(error.call(), "cuEventRecord");
  }
  EXPECT_EQ(kind_of([&] { timer.stop(); }), ErrorKind::kInvalidState) << "there is no start";
  time(timer, kMillisecond);
  EXPECT_NEAR(read(timer), 1.0, 0.01);
  EXPECT_FALSE(driver::warnings_pending()) << "what is thrown is not warned about too";
}

TEST_F(CudaTimer, InACaptureReadsEachReplay) {
  Timer timer(timing::kCudaClock);
  Capture capture(stream_);
  time(timer, 4 * kMillisecond);
  ASSERT_EQ(capture.end(), CUDA_SUCCESS);
  double ms = 0.0;
  EXPECT_EQ(kind_of([&] { timer.read(timing::monotonic_now(), ms); }), ErrorKind::kNotReplayed);
  Exec exec(capture.graph());
  exec.launch(stream_);
  driver::check(table_->cuCtxSynchronize(), "cuCtxSynchronize");
  EXPECT_NEAR(read(timer), 4.0, 0.01);
  // Outside of the capture it needs another pair: the graph has the first one.
  const void* const captured = timer.sample()->start;
  time(timer, kMillisecond);
  EXPECT_NE(timer.sample()->start, captured);
  EXPECT_NEAR(read(timer), 1.0, 0.01);
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
