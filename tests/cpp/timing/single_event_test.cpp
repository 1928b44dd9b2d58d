// Events that a caller records and reads by hand, on the fake driver.
#include "timing/single_event.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "support/driver_errors.hpp"
#include "support/fake.hpp"
#include "support/own_process.hpp"
#include "timing/cuda_event_clock.hpp"

namespace gpuprof::tests {
namespace {

using timing::EventClock;
using timing::SingleEvent;

constexpr std::int64_t kOneMillisecond = 1'000'000;

class SingleEventTest : public OnDevice {
 protected:
  void record(SingleEvent& event) const { event.record(number(stream_), 0); }

  // Waits up to ten seconds of real time, which nothing on the fake needs.
  [[nodiscard]] static bool is_reached_in_time(const SingleEvent& event) {
    constexpr timing::HostNanoseconds kPatience = 10'000'000'000;
    return event.wait(timing::monotonic_now() + kPatience);
  }

  static void expect_invalid_state(const driver::Error& error, const std::string& text) {
    EXPECT_EQ(error.kind(), driver::ErrorKind::kInvalidState);
    EXPECT_TRUE(contains(error.what(), text)) << error.what();
  }
};

TEST_F(SingleEventTest, TwoHaveTheTimeOfTheWorkBetweenThem) {
  SingleEvent begin;
  SingleEvent end;
  record(begin);
  work(stream_, 5 * kOneMillisecond);
  record(end);
  ASSERT_TRUE(is_reached_in_time(end));
  EXPECT_NEAR(begin.elapsed_ms(end), 5.0, 0.01);
  EXPECT_NEAR(end.elapsed_ms(begin), -5.0, 0.01);
  EXPECT_EQ(end.elapsed_ms(end), 0.0);
}

TEST_F(SingleEventTest, OneThatWasNeverRecordedIsReachedAndHasNoTime) {
  const SingleEvent never;
  SingleEvent other;
  record(other);
  EXPECT_FALSE(never.recorded());
  EXPECT_EQ(never.handle(), 0U);
  EXPECT_TRUE(never.is_reached());
  EXPECT_TRUE(never.wait(0));
  const std::uint64_t waits = calls_of("cuStreamWaitEvent");
  never.let_wait(number(stream_), 0);
  EXPECT_EQ(calls_of("cuStreamWaitEvent"), waits);
  expect_invalid_state(error_from([&] { static_cast<void>(never.elapsed_ms(other)); }), "record()");
  expect_invalid_state(error_from([&] { static_cast<void>(other.elapsed_ms(never)); }), "record()");
}

TEST_F(SingleEventTest, OneThatIsNotReachedIsWaitedForNoLongerThanAsked) {
  SingleEvent begin;
  SingleEvent end;
  record(begin);
  Gate gate(*table_, stream_);
  record(end);
  EXPECT_FALSE(end.is_reached());
  EXPECT_FALSE(end.wait(timing::monotonic_now()));
  expect_invalid_state(error_from([&] { static_cast<void>(begin.elapsed_ms(end)); }),
                       "synchronize()");
  gate.open();
  EXPECT_TRUE(is_reached_in_time(end));
  EXPECT_GE(begin.elapsed_ms(end), 0.0);
}

TEST_F(SingleEventTest, ARecordMovesItAndKeepsItsHandle) {
  SingleEvent begin;
  SingleEvent end;
  record(begin);
  record(end);
  const std::uintptr_t handle = end.handle();
  work(stream_, 3 * kOneMillisecond);
  record(end);
  EXPECT_EQ(end.handle(), handle);
  ASSERT_TRUE(is_reached_in_time(end));
  EXPECT_NEAR(begin.elapsed_ms(end), 3.0, 0.01);
}

TEST_F(SingleEventTest, AnotherStreamWaitsForIt) {
  const CUstream other = make_stream();
  SingleEvent event;
  SingleEvent after;
  Gate gate(*table_, stream_);
  record(event);
  event.let_wait(number(other), 0);
  after.record(number(other), 0);
  EXPECT_FALSE(after.is_reached());
  gate.open();
  EXPECT_TRUE(is_reached_in_time(after));
}

TEST_F(SingleEventTest, ADroppedOneIsTakenAgain) {
  std::uintptr_t handle = 0;
  {
    SingleEvent event;
    record(event);
    handle = event.handle();
  }
  SingleEvent next;
  record(next);
  EXPECT_EQ(next.handle(), handle);
}

TEST_F(SingleEventTest, OneMoreThanThereAreIsRefusedUntilAnotherIsDropped) {
  std::vector<std::unique_ptr<SingleEvent>> held;
  for (std::size_t i = 0; i < EventClock::kMaxPairs; ++i) {
    held.push_back(std::make_unique<SingleEvent>());
    record(*held.back());
  }
  SingleEvent more;
  expect_invalid_state(error_from([&] { record(more); }), "4096 event pairs");
  EXPECT_FALSE(more.recorded());
  held.pop_back();
  record(more);
  EXPECT_TRUE(is_reached_in_time(more));
}

TEST_F(SingleEventTest, ARefusedRecordLeavesItAsItWas) {
  SingleEvent begin;
  SingleEvent end;
  record(begin);
  script("cuEventRecord@1=400");
  const driver::Error error = error_from([&] { record(end); });
  EXPECT_EQ(error.kind(), driver::ErrorKind::kCuda);
  EXPECT_TRUE(contains(error.what(), "cuEventRecord")) << error.what();
  // Its event has what the one before it in the pool recorded.
  EXPECT_FALSE(end.recorded());
  expect_invalid_state(error_from([&] { static_cast<void>(begin.elapsed_ms(end)); }), "record()");
  script("");
  record(end);
  const std::uintptr_t handle = end.handle();
  script("cuEventRecord@1=400");
  error_from([&] { record(end); });
  EXPECT_EQ(end.handle(), handle);
  EXPECT_TRUE(is_reached_in_time(end));
}

TEST_F(SingleEventTest, ARecordInACaptureIsADependencyOfTheGraph) {
  const CUstream other = make_stream();
  SingleEvent fork;
  SingleEvent join;
  Capture capture(stream_);
  record(fork);
  fork.let_wait(number(other), 0);
  work(other, 2 * kOneMillisecond);
  join.record(number(other), 0);
  join.let_wait(number(stream_), 0);
  ASSERT_EQ(capture.end(), CUDA_SUCCESS) << "the other stream has joined";
  SingleEvent begin;
  SingleEvent end;
  {
    Exec exec(capture.graph());
    record(begin);
    exec.launch(stream_);
    record(end);
    ASSERT_TRUE(is_reached_in_time(end));
  }
  EXPECT_NEAR(begin.elapsed_ms(end), 2.0, 0.1);
}

TEST_F(SingleEventTest, TwoContextsHaveNoTimeBetweenThem) {
  CUcontext second = nullptr;
  driver::check(entry<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(&second, 0, 0),
                "cuCtxCreate");
  {
    CUstream there = nullptr;
    driver::check(table_->cuStreamCreate(&there, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    SingleEvent one;
    SingleEvent other;
    other.record(number(there), 0);
    record(one);
    ASSERT_TRUE(is_reached_in_time(one) && is_reached_in_time(other));
    expect_invalid_state(error_from([&] { static_cast<void>(one.elapsed_ms(other)); }),
                         "different devices or contexts");
    const std::uintptr_t before = other.handle();
    EXPECT_FALSE(other.record(number(stream_), 0)) << "it is of the second context";
    EXPECT_EQ(other.handle(), before);
    EXPECT_TRUE(other.is_reached());
    table_->cuStreamDestroy(there);
  }
  CUcontext popped = nullptr;
  table_->cuCtxPopCurrent(&popped);
  entry<CUresult(CUcontext)>("cuCtxDestroy_v2")(second);
}

TEST_F(SingleEventTest, OneOfALostContextIsAnErrorAndIsNotRecordedAnew) {
  CUcontext second = nullptr;
  driver::check(entry<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(&second, 0, 0),
                "cuCtxCreate");
  CUstream there = nullptr;
  driver::check(table_->cuStreamCreate(&there, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  SingleEvent event;
  event.record(number(there), 0);
  table_->cuStreamDestroy(there);
  CUcontext popped = nullptr;
  table_->cuCtxPopCurrent(&popped);
  driver::check(entry<CUresult(CUcontext)>("cuCtxDestroy_v2")(second), "cuCtxDestroy");
  EXPECT_NE(error_from([&] { static_cast<void>(event.is_reached()); }).what(), std::string());
  EXPECT_FALSE(event.record(number(stream_), 0));
}

TEST(SingleEventInAChild, IsRefusedAndNotGivenBack) {
  in_own_process([] {
    const driver::Table& table = driver::ready();
    CUcontext context = nullptr;
    driver::check(table.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    driver::check(table.cuCtxPushCurrent(context), "cuCtxPushCurrent");
    CUstream stream = nullptr;
    driver::check(table.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    auto event = std::make_unique<SingleEvent>();
    auto never = std::make_unique<SingleEvent>();
    event->record(number(stream), 0);
    const pid_t child = fork();
    if (child == 0) {
      int refused = 0;
      const auto call = [&](auto&& action) {
        try {
          action();
        } catch (const driver::Error& error) {
          refused += error.kind() == driver::ErrorKind::kForked ? 1 : 0;
        }
      };
      call([&] { static_cast<void>(event->is_reached()); });
      call([&] { event->let_wait(number(stream), 0); });
      call([&] { static_cast<void>(event->elapsed_ms(*event)); });
      call([&] { event->record(number(stream), 0); });
      const bool is_quiet = never->is_reached();
      event.reset();  // touches no driver
      _exit(refused == 4 && is_quiet ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_TRUE(event->is_reached()) << "the parent goes on";
  });
}

}  // namespace
}  // namespace gpuprof::tests
