// Events that a caller records and reads by hand, on the fake driver.
#include "timing/single_event.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/driver_errors.hpp"
#include "support/fake.hpp"
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

TEST_F(SingleEventTest, MoreThanThePoolHasMayBeHeldAndADroppedOneIsDestroyedByTheNext) {
  const long before = live("event");
  {
    std::vector<std::unique_ptr<SingleEvent>> held;
    for (std::size_t i = 0; i <= EventClock::kMaxPairs; ++i) {
      held.push_back(std::make_unique<SingleEvent>());
      record(*held.back());
    }
    EXPECT_TRUE(is_reached_in_time(*held.back()));
    EXPECT_EQ(held.back()->ordinal(), 0);
  }
  SingleEvent next;
  record(next);
  EXPECT_EQ(live("event"), before + 1);
}

TEST_F(SingleEventTest, ARefusedRecordLeavesItAsItWas) {
  SingleEvent begin;
  SingleEvent end;
  record(begin);
  script("cuEventRecord@1=400");
  const driver::Error error = error_from([&] { record(end); });
  EXPECT_EQ(error.kind(), driver::ErrorKind::kCuda);
  EXPECT_TRUE(contains(error.what(), "cuEventRecord")) << error.what();
  EXPECT_FALSE(end.recorded());
  EXPECT_THROW(static_cast<void>(begin.elapsed_ms(end)), std::invalid_argument);
  script("");
  record(end);
  const std::uintptr_t handle = end.handle();
  script("cuEventRecord@1=400");
  error_from([&] { record(end); });
  EXPECT_EQ(end.handle(), handle);
  EXPECT_TRUE(is_reached_in_time(end));
}

TEST_F(SingleEventTest, ExternalOnesAreNodesOfGraphsThatEachReplayRuns) {
  const CUstream other = make_stream();
  SingleEvent begin(true);
  auto done = std::make_unique<SingleEvent>(true);
  Capture first(stream_);
  record(begin);
  work(stream_, 2 * kOneMillisecond);
  record(*done);
  ASSERT_EQ(first.end(), CUDA_SUCCESS);
  EXPECT_TRUE(done->is_reached()) << "nothing was recorded yet";
  const driver::Error error = error_from([&] { static_cast<void>(begin.elapsed_ms(*done)); });
  EXPECT_EQ(error.kind(), driver::ErrorKind::kNotReplayed);
  Capture second(other);
  done->let_wait(number(other), 0);
  ASSERT_EQ(second.end(), CUDA_SUCCESS) << "it is no dependency on the first capture";
  SingleEvent after;
  {
    Exec exec_first(first.graph());
    Exec exec_second(second.graph());
    Gate gate(*table_, stream_);
    exec_first.launch(stream_);
    exec_second.launch(other);
    after.record(number(other), 0);
    EXPECT_FALSE(after.is_reached());
    gate.open();
    ASSERT_TRUE(is_reached_in_time(after));
    EXPECT_NEAR(begin.elapsed_ms(*done), 2.0, 0.1);
  }
}

TEST_F(SingleEventTest, TwoContextsHaveNoTimeBetweenThem) {
  const CUcontext second = make_context();
  {
    const CUstream there = make_current_stream();
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
  destroy_context(second);
}

}  // namespace
}  // namespace gpuprof::tests
