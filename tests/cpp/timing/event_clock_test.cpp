// Spans on the fake driver: when they are read, in which order, and what becomes of them when the
// driver fails.
#include "timing/cuda_contexts.hpp"
#include "timing/cuda_event_clock.hpp"
#include "timing/l2_flush_buffer.hpp"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "support/allocations.hpp"
#include "support/fake.hpp"
#include "support/own_process.hpp"

namespace gpuprof::tests {
namespace {

using timing::EventClock;
using timing::EventPair;
using timing::SampleRef;
using timing::SampleStatus;

constexpr std::int64_t kMillisecond = 1'000'000;

class EventClockTest : public OnDevice {};

TEST_F(EventClockTest, ReadsAStreamInOrderUpToTheFirstUnfinishedSpan) {
  std::vector<SampleRef> before{span(stream_), span(stream_), span(stream_)};
  driver::check(table_->cuCtxSynchronize(), "cuCtxSynchronize");
  Gate gate(*table_, stream_);
  std::vector<SampleRef> after{span(stream_), span(stream_)};
  timing::device::drain();
  for (const SampleRef& sample : before) EXPECT_EQ(sample->load_status(), SampleStatus::kDone);
  for (const SampleRef& sample : after) EXPECT_EQ(sample->load_status(), SampleStatus::kPending);
  gate.open();
  EXPECT_TRUE(wait_for(after.back()));
  EXPECT_EQ(after.front()->load_status(), SampleStatus::kDone) << "all before a known one is known";
}

TEST_F(EventClockTest, AStreamThatWaitsHoldsBackNoOtherStream) {
  const CUstream other = make_stream();
  Gate gate(*table_, stream_);
  const SampleRef held = span(stream_);
  const SampleRef free = span(other, kMillisecond);
  EXPECT_TRUE(wait_for(free));
  EXPECT_EQ(held->load_status(), SampleStatus::kPending);
  gate.open();
  EXPECT_TRUE(wait_for(held));
}

TEST_F(EventClockTest, TheDefaultStreamsOfTwoThreadsHoldEachOtherNotBack) {
  const auto per_thread = reinterpret_cast<CUstream>(2);
  Gate gate(*table_, per_thread);
  const SampleRef held = span(per_thread);
  SampleRef free;
  std::thread([&] {
    const driver::CurrentContext current(*table_, context_);
    free = span(per_thread, kMillisecond);
    EXPECT_TRUE(wait_for(free));
  }).join();
  EXPECT_EQ(free->load_status(), SampleStatus::kDone);
  EXPECT_EQ(held->load_status(), SampleStatus::kPending);
  gate.open();
  EXPECT_TRUE(wait_for(held));
}

TEST_F(EventClockTest, HandsOutTheLastPairGivenBackFirst) {
  unsigned long long id = 0;
  driver::check(table_->cuCtxGetId(context_, &id), "cuCtxGetId");
  EventClock clock(*table_, context_, id, 0, false);
  EventPair first;
  EventPair second;
  EventPair again;
  ASSERT_TRUE(clock.take(first));
  ASSERT_TRUE(clock.take(second));
  EXPECT_NE(first.start, second.start);
  clock.give_back(first);
  clock.give_back(second);
  ASSERT_TRUE(clock.take(again));
  EXPECT_EQ(again.start, second.start);
  EXPECT_EQ(again.end, second.end);
  EXPECT_EQ(clock.destroy_idle(), 1U);
  clock.give_back(again);
  EXPECT_EQ(clock.destroy_idle(), 0U);
}

TEST_F(EventClockTest, ARefusedRecordFailsItsSpanAndNoOther) {
  ASSERT_TRUE(wait_for(span(stream_)));
  script("cuEventRecord@2=1");  // the end of the first span from here
  const SampleRef failed = span(stream_, 0, "refused");
  EXPECT_EQ(failed->load_status(), SampleStatus::kFailed);
  ASSERT_TRUE(failed->error);
  EXPECT_EQ(failed->error->call(), "cuEventRecord");
  EXPECT_EQ(failed->error->code(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(row("refused").failed, 1U);
  const SampleRef next = span(stream_);
  EXPECT_TRUE(wait_for(next));
  EXPECT_EQ(next->load_status(), SampleStatus::kDone);
  EXPECT_EQ(driver::take_warnings().size(), 1U);
}

TEST_F(EventClockTest, AnEventThatCannotBeMadeFailsTheSpan) {
  script("cuEventCreate@1=2");
  const SampleRef sample = span(stream_);
  EXPECT_EQ(sample->load_status(), SampleStatus::kFailed);
  ASSERT_TRUE(sample->error);
  EXPECT_EQ(sample->error->name(), "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_TRUE(wait_for(span(stream_)));
}

TEST_F(EventClockTest, AnUnreadableIntervalFailsItsSpanAndNoOther) {
  const SampleRef first = span(stream_);
  const SampleRef second = span(stream_);
  const SampleRef third = span(stream_);
  driver::check(table_->cuCtxSynchronize(), "cuCtxSynchronize");
  script("cuEventElapsedTime@2=1");
  timing::device::drain();
  EXPECT_EQ(first->load_status(), SampleStatus::kDone);
  EXPECT_EQ(second->load_status(), SampleStatus::kFailed);
  EXPECT_EQ(third->load_status(), SampleStatus::kDone);
  EXPECT_EQ(row("span").device.count, 2U);
  EXPECT_EQ(row("span").failed, 1U);
}

// From here on a context is lost or the driver poisoned, which the process remembers.

TEST(EventClockLoss, ATrapOnTheDeviceIsFoundByTheWaitForIt) {
  in_own_process([] {
    use_primary();
    const CUstream stream = make_current_stream();
    const SampleRef sample = open_span(stream);
    ASSERT_EQ(entry<int(CUstream)>("fakecuda_trap")(stream), 0);
    work(stream, kMillisecond);
    close_span(sample);
    EXPECT_TRUE(wait_for(sample));
    EXPECT_EQ(sample->load_status(), SampleStatus::kFailed);
    ASSERT_TRUE(sample->error);
    EXPECT_EQ(sample->error->name(), "CUDA_ERROR_LAUNCH_FAILED");
  });
}

TEST_F(EventClockTest, GivingAPairBackAllocatesNothing) {
  EventClock& clock = *timing::contexts::find(*table_, number(stream_), 0).clock;
  std::vector<EventPair> pairs(100);
  for (EventPair& pair : pairs) ASSERT_TRUE(clock.take(pair));
  timing::device::release_idle();
  const std::uint64_t before = allocations;
  for (const EventPair& pair : pairs) clock.give_back(pair);
  EXPECT_EQ(allocations, before);
}

TEST_F(EventClockTest, PairsThatTheDriverRefusesDoNotCountAsMade) {
  timing::device::release_idle();
  EventClock& clock = *timing::contexts::find(*table_, number(stream_), 0).clock;
  EventPair pairs[3];
  script("cuEventCreate@5*=2");
  EXPECT_THROW(clock.take(pairs[0]), driver::Error);
  ASSERT_TRUE(clock.take(pairs[0]) && clock.take(pairs[1]));
  for (std::size_t i = 0; i < EventClock::kMaxPairs; ++i) {
    ASSERT_THROW(clock.take(pairs[2]), driver::Error) << i;
  }
  script("");
  ASSERT_TRUE(clock.take(pairs[2]));
  for (const EventPair& pair : pairs) clock.give_back(pair);
}

TEST_F(EventClockTest, ABufferOfALostContextIsRefusedAndLetGo) {
  const CUcontext lost = make_context();
  const std::uint64_t freed = calls_of("cuMemFree_v2");
  {
    timing::DeviceBuffer buffer(1024);
    buffer.fill(1, 0);
    destroy_context(lost);
    const std::uint64_t before = calls_of("cuMemsetD32Async") + calls_of("cuMemFree");
    EXPECT_THROW(buffer.fill(1, 0), driver::Error);
    EXPECT_EQ(calls_of("cuMemsetD32Async") + calls_of("cuMemFree"), before);
  }
  EXPECT_EQ(calls_of("cuMemFree_v2"), freed);
}

}  // namespace
}  // namespace gpuprof::tests
