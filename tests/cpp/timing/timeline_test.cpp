// Where GPU times lie on the host's clock: how well they are placed, and when.
#include "timing/timeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <thread>

#include "support/on_timeline.hpp"
#include "timing/cuda_event_clock.hpp"

namespace gpuprof::tests {
namespace {

// The end of a span as a mark of its own.
GpuMark end_of(const SampleRef& sample) {
  GpuMark mark = sample->gpu_begin;
  mark.ms += sample->device_ms;
  return mark;
}

TEST_F(TimelineTest, PlacesAStartWithinThreeMicrosecondsOfTheTruth) {
  want(true);
  for (int i = 0; i < 200; ++i) {
    advance(i * kMillisecond);
    const SampleRef sample = short_span();
    timeline::refresh();
    ASSERT_EQ(sample->load_status(), SampleStatus::kDone);
    ASSERT_LE(distance(sample->gpu_begin, truth_), 3 * kMicrosecond) << i;
  }
}

// Other processes have the GPU for 0.8 ms before each anchor's turn. Those are 40 looks of 20 us:
// fewer than an anchor is given however slow the host is.
TEST_F(TimelineTest, AnAnchorThatWaitedForItsTurnIsKnownToAPollAndTheNewsOfIt) {
  const auto refresh_in_turn = [] {
    ASSERT_EQ(configure("record_ns=800000;query_ns=20000"), 0);
    timeline::refresh();
    ASSERT_EQ(configure(kLatencies), 0);
  };
  short_span();  // the context is in use
  want(true);
  for (int i = 0; i < 5; ++i) {
    advance(kQuarter);
    refresh_in_turn();
    const SampleRef sample = short_span();
    ASSERT_TRUE(wait_for(sample));
    advance(kQuarter);
    refresh_in_turn();
    HostMoment found;
    ASSERT_EQ(timeline::place(sample->gpu_begin, found), Placement::kPlaced);
    EXPECT_LE(std::abs(found.at - truth_), found.error);
    EXPECT_LE(found.error, 60 * kMicrosecond) << i;
  }
}

TEST_F(TimelineTest, ASampleIsPlacedOnceAnAnchorFollowed) {
  want(true);
  const SampleRef sample = short_span();
  EXPECT_EQ(placement(sample), Placement::kLost) << "nothing is known of it yet";
  ASSERT_TRUE(wait_for(sample));
  EXPECT_EQ(placement(sample), Placement::kNotYet);
  timeline::refresh();
  EXPECT_EQ(placement(sample), Placement::kPlaced);
}

TEST_F(TimelineTest, WithoutAnybodyWhoWantsItSpansNoteNothing) {
  const std::uint64_t readings = calls_of("cuEventElapsedTime");
  const SampleRef sample = short_span();
  timeline::refresh();
  ASSERT_TRUE(wait_for(sample));
  EXPECT_EQ(calls_of("cuEventElapsedTime"), readings + 1);
  EXPECT_EQ(sample->gpu_begin.clock, nullptr);
  EXPECT_EQ(placement(sample), Placement::kLost);
  EXPECT_EQ(live("stream"), 1) << "an anchor's stream was made";
}

TEST_F(TimelineTest, TheFirstSpanOnAContextGetsItsAnchorFirst) {
  want(true);
  EXPECT_EQ(live("stream"), 1) << "no span yet, so no context is in use";
  const SampleRef sample = open();
  EXPECT_EQ(live("stream"), 2);
  close_span(sample);
  ASSERT_TRUE(wait_for(sample));
  EXPECT_EQ(sample->gpu_begin.anchor, 1U);
  EXPECT_GT(sample->gpu_begin.ms, 0.0);
  advance(kQuarter);
  timeline::refresh();
  EXPECT_LE(distance(sample->gpu_begin, truth_), 3 * kMicrosecond);
}

TEST_F(TimelineTest, ASpanThatPendsLongIsMeasuredFromAnAnchorNearIt) {
  want(true);
  short_span();
  work(stream_, 40 * kSecond);
  const SampleRef sample = open();
  close_span(sample);
  pass(45 * kSecond);
  ASSERT_EQ(sample->load_status(), SampleStatus::kDone);
  EXPECT_LT(std::abs(sample->gpu_begin.ms), 260.0);
  EXPECT_LE(distance(sample->gpu_begin, truth_), 3 * kMicrosecond);
}

TEST_F(TimelineTest, BothEndsOfALongSpanAreWhereTheyWere) {
  want(true);
  short_span();
  advance(100 * kMillisecond);
  const SampleRef sample = open();
  const HostNanoseconds begin = truth_;
  work(stream_, 60 * kSecond);
  close_span(sample);
  const HostNanoseconds end = tail_of(stream_);
  pass(61 * kSecond);
  ASSERT_EQ(sample->load_status(), SampleStatus::kDone);
  EXPECT_LE(distance(sample->gpu_begin, begin), 3 * kMicrosecond);
  // The driver rounds a minute to 4 us.
  EXPECT_LE(distance(end_of(sample), end), 5 * kMicrosecond);
}

TEST_F(TimelineTest, ASpanLongerThanAnchorsLiveIsPlacedWithAnHonestError) {
  want(true);
  short_span();
  const SampleRef sample = open();
  pass(200 * kSecond);
  close_span(sample);
  advance(kMillisecond);
  timeline::refresh();
  distance(sample->gpu_begin, truth_);
}

TEST_F(TimelineTest, ASpanBegunBeforeAnybodyWantedItIsPlacedToo) {
  short_span();
  const SampleRef sample = open();
  advance(3 * kSecond);
  want(true);
  pass(2 * kSecond);
  close_span(sample);
  advance(kMillisecond);
  timeline::refresh();
  ASSERT_EQ(sample->load_status(), SampleStatus::kDone);
  EXPECT_LE(distance(sample->gpu_begin, truth_), 10 * kMicrosecond);
}

TEST_F(TimelineTest, ATimerReadByHandIsPlacedToo) {
  want(true);
  const SampleRef sample(timing::make_sample());
  sample->keeps_pair = true;
  sample->counted = false;
  sample->path = &timing::root_path();
  sample->stream = number(stream_);
  for (int i = 0; i < 3; ++i) {
    sample->finish(SampleStatus::kOpen);
    timing::device::begin(*sample.get(), false, 0);
    const HostNanoseconds truth = tail_of(stream_);
    timing::device::end(*sample.get());
    ASSERT_TRUE(wait_for(sample));
    timeline::refresh();
    EXPECT_LE(distance(sample->gpu_begin, truth), 3 * kMicrosecond) << i;
  }
  want(false);
  sample->finish(SampleStatus::kOpen);
  timing::device::begin(*sample.get(), false, 0);
  timing::device::end(*sample.get());
  ASSERT_TRUE(wait_for(sample));
  EXPECT_EQ(sample->gpu_begin.clock, nullptr) << "a used timer remembers nothing";
}

TEST_F(TimelineTest, ASpanThatWaitsForAllStreamsIsPlacedToo) {
  want(true);
  const SampleRef sample = open();
  timing::device::end_and_wait_for_all(*sample.get());
  timeline::refresh();
  EXPECT_LE(distance(sample->gpu_begin, truth_), 3 * kMicrosecond);
}

TEST_F(TimelineTest, TwoContextsHaveAnchorsOfTheirOwn) {
  want(true);
  const CUcontext second = make_context();
  const CUstream foreign = make_current_stream();
  CUcontext popped = nullptr;
  driver::check(table_->cuCtxPopCurrent(&popped), "cuCtxPopCurrent");
  const SampleRef here = open();
  close_span(here);
  const SampleRef there = open_span(foreign);
  const HostNanoseconds truth = tail_of(foreign);
  close_span(there);
  pass(kSecond);
  EXPECT_NE(here->gpu_begin.clock, there->gpu_begin.clock);
  EXPECT_LE(distance(here->gpu_begin, truth_), 3 * kMicrosecond);
  EXPECT_LE(distance(there->gpu_begin, truth), 3 * kMicrosecond);
  want(false);
  EXPECT_EQ(timing::device::release_idle(), 0U);
  table_->cuStreamDestroy(foreign);
  destroy_context(second);
}

TEST_F(TimelineTest, TheLastWhoWantsItGivesAllAnchorsBack) {
  short_span();
  timing::device::drain();
  const long events = live("event");
  want(true);
  timeline::want(true);
  const SampleRef sample = short_span();
  pass(kSecond);
  EXPECT_GT(live("event"), events);
  timeline::want(false);
  EXPECT_EQ(placement(sample), Placement::kPlaced) << "somebody wants it still";
  want(false);
  EXPECT_EQ(live("event"), events);
  EXPECT_EQ(live("stream"), 1);
  EXPECT_EQ(placement(sample), Placement::kLost);

  want(true);
  const SampleRef next = short_span();
  pass(kSecond);
  EXPECT_LE(distance(next->gpu_begin, truth_), 3 * kMicrosecond);
  EXPECT_EQ(placement(sample), Placement::kLost) << "a number was given twice";
}

TEST_F(TimelineTest, TheEventsOfOldAnchorsAreGivenBack) {
  want(true);
  const SampleRef sample = short_span();
  pass(130 * kSecond);
  const long events = live("event");
  pass(100 * kSecond);
  EXPECT_LE(live("event"), events + 1);  // there may be a spare one
  EXPECT_EQ(placement(sample), Placement::kPlaced) << "numbers are kept longer than events";
  pass(500 * kSecond);
  EXPECT_EQ(placement(sample), Placement::kLost);
}

TEST_F(TimelineTest, ManyThreadsMayAskAtOnce) {
  want(true);
  std::atomic<bool> done{false};
  std::thread writer([&] {
    while (!done.load()) timeline::refresh();
  });
  std::thread other([&] {
    for (int i = 0; i < 50; ++i) {
      timeline::want(true);
      timeline::refresh();
      timeline::want(false);
    }
  });
  const CUstream own = make_stream();
  std::thread spans([&] {
    driver::check(table_->cuCtxPushCurrent(context_), "cuCtxPushCurrent");
    for (int i = 0; i < 200; ++i) {
      const SampleRef sample = span(own, kMicrosecond);
      EXPECT_TRUE(wait_for(sample));
    }
    CUcontext popped = nullptr;
    table_->cuCtxPopCurrent(&popped);
  });
  int placed = 0;
  for (int i = 0; i < 200; ++i) {
    const SampleRef sample = short_span();
    EXPECT_TRUE(wait_for(sample));
    placed += placement(sample) == Placement::kPlaced ? 1 : 0;
    timeline::refresh();
    EXPECT_EQ(placement(sample), Placement::kPlaced);
  }
  other.join();
  spans.join();
  done.store(true);
  writer.join();
  EXPECT_LE(placed, 200);
}

}  // namespace
}  // namespace gpuprof::tests
