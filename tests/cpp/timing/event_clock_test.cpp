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

class EventClockTest : public OnDevice {
 protected:
  [[nodiscard]] CUstreamCaptureStatus capture_status(CUstream stream) const {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_EQ(table_->cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
    return status;
  }
};

TEST_F(EventClockTest, MeasuresTheWorkOfItsStream) {
  const SampleRef sample = span(stream_, 5 * kMillisecond);
  ASSERT_TRUE(wait_for(sample));
  EXPECT_EQ(sample->load_status(), SampleStatus::kDone);
  EXPECT_NEAR(sample->device_ms, 5.0, 0.01);
  EXPECT_EQ(row("span").device.count, 1U);
  EXPECT_DOUBLE_EQ(row("span").device.total, sample->device_ms);
}

TEST_F(EventClockTest, LeavingASpanDoesNotWait) {
  Gate gate(*table_, stream_);
  const SampleRef sample = span(stream_);
  EXPECT_EQ(sample->load_status(), SampleStatus::kPending);
  timing::device::drain();
  EXPECT_EQ(sample->load_status(), SampleStatus::kPending);
  EXPECT_FALSE(timing::device::wait(*sample.get(), timing::monotonic_now()));
  gate.open();
  EXPECT_TRUE(wait_for(sample));
  EXPECT_EQ(sample->load_status(), SampleStatus::kDone);
}

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

TEST_F(EventClockTest, ASpanAfterAnotherMakesNoNewEvents) {
  ASSERT_TRUE(wait_for(span(stream_)));
  const std::uint64_t made = calls_of("cuEventCreate");
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(wait_for(span(stream_)));
  EXPECT_EQ(calls_of("cuEventCreate"), made);
}

TEST_F(EventClockTest, ManySpansNeverReadKeepMemoryFlatAndAllCount) {
  constexpr std::uint64_t kSpans = 20'000;
  for (std::uint64_t i = 0; i < kSpans; ++i) span(stream_);
  EXPECT_LE(live("event"), 2 * static_cast<long>(EventClock::kMaxPairs));
  driver::check(table_->cuCtxSynchronize(), "cuCtxSynchronize");
  timing::device::drain();
  EXPECT_EQ(row("span").device.count, kSpans);
  EXPECT_EQ(row("span").dropped, 0U);
}

TEST_F(EventClockTest, DropsAndCountsWhatFindsNoPair) {
  {
    Gate gate(*table_, stream_);
    std::vector<SampleRef> held;
    for (std::size_t i = 0; i < EventClock::kMaxPairs; ++i) {
      held.push_back(span(stream_));
      ASSERT_EQ(held.back()->load_status(), SampleStatus::kPending) << i;
    }
    EXPECT_FALSE(driver::warnings_pending());
    const SampleRef dropped = span(stream_);
    span(stream_);
    EXPECT_EQ(dropped->load_status(), SampleStatus::kDropped);
    EXPECT_EQ(row("span").dropped, 2U);
    const std::vector<std::string> warnings = driver::take_warnings();
    ASSERT_EQ(warnings.size(), 1U);
    EXPECT_NE(warnings[0].find("4096"), std::string::npos) << warnings[0];
    gate.open();
    EXPECT_TRUE(wait_for(held.back()));
  }
  EXPECT_EQ(row("span").device.count, EventClock::kMaxPairs);
  EXPECT_TRUE(wait_for(span(stream_))) << "after the drain there is room again";
  EXPECT_EQ(row("span").device.count, EventClock::kMaxPairs + 1);
}

TEST_F(EventClockTest, CountsWhatIsPending) {
  Gate gate(*table_, stream_);
  const SampleRef first = span(stream_, 0, "pending one");
  const SampleRef second = span(stream_, 0, "pending two");
  const SampleRef third = span(stream_, 0, "pending two");
  std::uint64_t one = 0;
  std::uint64_t two = 0;
  for (const auto& entry : timing::device::pending_counts()) {
    if (entry.path->text == "pending one") one += entry.count;
    if (entry.path->text == "pending two") two += entry.count;
  }
  EXPECT_EQ(one, 1U);
  EXPECT_EQ(two, 2U);
  const std::vector<SampleRef> tails = timing::device::pending_tails();
  ASSERT_EQ(tails.size(), 1U);
  EXPECT_EQ(tails[0].get(), third.get());
  gate.open();
  EXPECT_TRUE(wait_for(third));
  EXPECT_TRUE(timing::device::pending_counts().empty());
}

TEST_F(EventClockTest, AForgottenSampleIsReadAndCountedAllTheSame) {
  {
    Gate gate(*table_, stream_);
    span(stream_, 0, "forgotten");
  }
  driver::check(table_->cuCtxSynchronize(), "cuCtxSynchronize");
  timing::device::drain();
  EXPECT_EQ(row("forgotten").device.count, 1U);
}

TEST_F(EventClockTest, ADefaultStreamWithoutAContextIsThePrimaryContexts) {
  CUcontext mine = nullptr;
  driver::check(table_->cuCtxPopCurrent(&mine), "cuCtxPopCurrent");
  const SampleRef sample = span(nullptr);
  EXPECT_TRUE(wait_for(sample));
  EXPECT_EQ(sample->load_status(), SampleStatus::kDone);
  CUcontext current = context_;
  driver::check(table_->cuCtxGetCurrent(&current), "cuCtxGetCurrent");
  EXPECT_EQ(current, nullptr) << "a context was left current";
  driver::check(table_->cuCtxPushCurrent(mine), "cuCtxPushCurrent");
}

TEST_F(EventClockTest, ReadingAndWaitingSpareAnOpenCapture) {
  for (const CUstreamCaptureMode mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CU_STREAM_CAPTURE_MODE_RELAXED}) {
    const SampleRef before = span(stream_, kMillisecond);
    const CUstream captured = make_stream();
    Capture capture(captured, mode);
    const SampleRef during = span(stream_, kMillisecond);
    timing::device::drain();
    EXPECT_TRUE(wait_for(before)) << mode;
    EXPECT_TRUE(wait_for(during)) << mode;
    EXPECT_EQ(during->load_status(), SampleStatus::kDone) << mode;
    EXPECT_EQ(capture_status(captured), CU_STREAM_CAPTURE_STATUS_ACTIVE) << mode;
    EXPECT_EQ(capture.end(), CUDA_SUCCESS) << mode;
  }
}

TEST_F(EventClockTest, AnotherThreadMayDrainDuringAGlobalCapture) {
  const SampleRef sample = span(stream_, kMillisecond);
  const CUstream captured = make_stream();
  Capture capture(captured);
  std::thread([&] { EXPECT_TRUE(wait_for(sample)); }).join();
  EXPECT_EQ(capture_status(captured), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(capture.end(), CUDA_SUCCESS);
}

TEST_F(EventClockTest, SkipsASpanInSomebodysCaptureWithOneWarning) {
  Capture capture(stream_);
  const SampleRef sample = span(stream_);
  span(stream_);
  EXPECT_EQ(sample->load_status(), SampleStatus::kSkipped);
  EXPECT_EQ(row("span").skipped, 2U);
  EXPECT_EQ(driver::take_warnings().size(), 1U);
  EXPECT_EQ(capture.end(), CUDA_SUCCESS);
}

TEST_F(EventClockTest, ACapturedSpanReadsEachReplay) {
  SampleRef sample;
  {
    Capture capture(stream_);
    sample = open_span(stream_, "captured", true);
    work(stream_, 3 * kMillisecond);
    close_span(sample);
    EXPECT_EQ(sample->load_status(), SampleStatus::kCaptured);
    ASSERT_EQ(capture.end(), CUDA_SUCCESS);
    double ms = 0.0;
    try {
      timing::device::read_captured(*sample.get(), ms);
      ADD_FAILURE() << "a graph that has not run gave " << ms;
    } catch (const driver::Error& error) {
      EXPECT_EQ(error.kind(), driver::ErrorKind::kNotReplayed) << error.what();
    }
    Exec exec(capture.graph());
    for (int replay = 0; replay < 2; ++replay) {
      exec.launch(stream_);
      driver::check(table_->cuCtxSynchronize(), "cuCtxSynchronize");
      ASSERT_TRUE(timing::device::read_captured(*sample.get(), ms));
      EXPECT_NEAR(ms, 3.0, 0.01);
    }
  }
  const long before = live("event");
  sample = SampleRef();
  EXPECT_EQ(live("event"), before - 2) << "a graph's events never go back to the pool";
}

TEST_F(EventClockTest, ASpanOnTheLegacyStreamLeavesABlockingCaptureAlone) {
  const CUstream blocking = make_stream(CU_STREAM_DEFAULT);
  Capture capture(blocking);
  const SampleRef sample = span(nullptr);
  EXPECT_EQ(sample->load_status(), SampleStatus::kFailed);
  ASSERT_TRUE(sample->error);
  EXPECT_EQ(sample->error->code(), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(driver::take_warnings().size(), 1U);
  EXPECT_EQ(capture.end(), CUDA_SUCCESS);
}

TEST_F(EventClockTest, ACaptureThatBeginsInsideASpanFailsIt) {
  const SampleRef sample = open_span(stream_);
  Capture capture(stream_);
  close_span(sample);
  EXPECT_EQ(sample->load_status(), SampleStatus::kFailed);
  ASSERT_TRUE(sample->error);
  EXPECT_NE(std::string(sample->error->what()).find("capture began"), std::string::npos);
  EXPECT_EQ(capture.end(), CUDA_SUCCESS);
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

TEST_F(EventClockTest, TwoContextsKeepTheirEventsApart) {
  CUcontext second = nullptr;
  driver::check(entry<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(&second, 0, 0),
                "cuCtxCreate");
  CUstream foreign = nullptr;
  driver::check(table_->cuStreamCreate(&foreign, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  CUcontext popped = nullptr;
  driver::check(table_->cuCtxPopCurrent(&popped), "cuCtxPopCurrent");
  const SampleRef there = span(foreign, 2 * kMillisecond);
  const SampleRef here = span(stream_, kMillisecond);
  EXPECT_TRUE(wait_for(there));
  EXPECT_TRUE(wait_for(here));
  EXPECT_NEAR(there->device_ms, 2.0, 0.01);
  EXPECT_NEAR(here->device_ms, 1.0, 0.01);
  EXPECT_NE(there->events, here->events);
  EXPECT_EQ(timing::device::release_idle(), 0U);
  table_->cuStreamDestroy(foreign);
  entry<CUresult(CUcontext)>("cuCtxDestroy_v2")(second);
}

// From here on a context is lost or the driver poisoned, which the process remembers.

TEST(EventClockLoss, ADestroyedContextFailsWhatIsPendingAndIsNotTouchedAgain) {
  in_own_process([] {
    const driver::Table& table = driver::ready();
    CUcontext context = nullptr;
    driver::check(entry<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(&context, 0, 0),
                  "cuCtxCreate");
    CUstream stream = nullptr;
    driver::check(table.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    work(stream, 1'000 * kMillisecond);
    const SampleRef first = span(stream);
    const SampleRef second = span(stream);
    ASSERT_EQ(second->load_status(), SampleStatus::kPending);
    driver::check(entry<CUresult(CUcontext)>("cuCtxDestroy_v2")(context), "cuCtxDestroy");
    EXPECT_TRUE(wait_for(first));
    EXPECT_EQ(first->load_status(), SampleStatus::kFailed);
    EXPECT_EQ(second->load_status(), SampleStatus::kFailed);
    ASSERT_TRUE(second->error);
    EXPECT_EQ(second->error->code(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(timing::device::release_idle(), 0U);
    // Another context of the same device goes on.
    driver::check(table.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    const driver::CurrentContext current(table, context);
    driver::check(table.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    const SampleRef next = span(stream, kMillisecond);
    EXPECT_TRUE(wait_for(next));
    EXPECT_EQ(next->load_status(), SampleStatus::kDone);
  });
}

TEST(EventClockLoss, AStickyErrorFailsWhatIsPendingAndStopsAllCalls) {
  in_own_process([] {
    const driver::Table& table = driver::ready();
    CUcontext context = nullptr;
    driver::check(table.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    const driver::CurrentContext current(table, context);
    CUstream stream = nullptr;
    driver::check(table.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    const SampleRef first = span(stream);
    const SampleRef second = span(stream);
    driver::check(table.cuCtxSynchronize(), "cuCtxSynchronize");
    script("cuEventElapsedTime@2=719:sticky");
    timing::device::drain();
    EXPECT_EQ(first->load_status(), SampleStatus::kDone);
    EXPECT_EQ(second->load_status(), SampleStatus::kFailed);
    ASSERT_TRUE(second->error);
    EXPECT_EQ(second->error->code(), CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_EQ(driver::blocked.load() & driver::kSticky, driver::kSticky);

    const std::uint64_t calls = calls_of("any");
    const SampleRef refused = span(stream);
    EXPECT_EQ(refused->load_status(), SampleStatus::kFailed);
    ASSERT_TRUE(refused->error);
    EXPECT_EQ(refused->error->call(), "cuEventElapsedTime") << "the first failure is the one told";
    timing::device::drain();
    timing::device::release_idle();
    EXPECT_EQ(calls_of("any"), calls) << "a poisoned driver was called";
  });
}

TEST(EventClockLoss, ATrapOnTheDeviceIsFoundByTheWaitForIt) {
  in_own_process([] {
    const driver::Table& table = driver::ready();
    CUcontext context = nullptr;
    driver::check(table.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    const driver::CurrentContext current(table, context);
    CUstream stream = nullptr;
    driver::check(table.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
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

TEST(EventClockLoss, ADriverThatIsTakenDownFailsWhatIsPending) {
  in_own_process([] {
    const driver::Table& table = driver::ready();
    CUcontext context = nullptr;
    driver::check(table.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    const driver::CurrentContext current(table, context);
    const SampleRef sample = span(nullptr);
    entry<void()>("fakecuda_deinit")();
    EXPECT_TRUE(wait_for(sample));
    EXPECT_EQ(sample->load_status(), SampleStatus::kFailed);
    ASSERT_TRUE(sample->error);
    EXPECT_EQ(sample->error->kind(), driver::ErrorKind::kGone);
    const std::uint64_t calls = calls_of("any");
    span(nullptr);
    timing::device::drain();
    EXPECT_EQ(calls_of("any"), calls) << "a driver that is gone was called";
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
  CUcontext lost = nullptr;
  ASSERT_EQ(entry<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(&lost, 0, 0), 0);
  {
    timing::DeviceBuffer buffer(1024);
    buffer.fill(1, 0);
    ASSERT_EQ(entry<CUresult(CUcontext)>("cuCtxDestroy_v2")(lost), 0);
    const std::uint64_t before = calls_of("cuMemsetD32Async") + calls_of("cuMemFree");
    EXPECT_THROW(buffer.fill(1, 0), driver::Error);
    EXPECT_THROW(buffer.copy(1, 0), driver::Error);
    EXPECT_EQ(calls_of("cuMemsetD32Async") + calls_of("cuMemFree"), before);
  }
  EXPECT_EQ(calls_of("cuMemFree_v2"), 0U);
}

}  // namespace
}  // namespace gpuprof::tests
