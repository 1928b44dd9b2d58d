// GPU times on the host's clock, on the fake driver: its clock drifts against the host's, and the
// host is told late and never quite the same, as on the real one.
#include "timing/timeline.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "fake.hpp"
#include "own_process.hpp"
#include "timing/cuda_contexts.hpp"
#include "timing/cuda_event_clock.hpp"
#include "timing/timer.hpp"

namespace gpuprof::tests {
namespace {

using timing::GpuMark;
using timing::HostNanoseconds;
using timing::SampleRef;
using timing::SampleStatus;
using timing::timeline::HostMoment;
using timing::timeline::Placement;

namespace timeline = timing::timeline;

constexpr HostNanoseconds kMicrosecond = 1'000;
constexpr HostNanoseconds kMillisecond = 1'000'000;
constexpr HostNanoseconds kSecond = 1'000'000'000;
constexpr HostNanoseconds kQuarter = kSecond / 4;

// Brackets of 5.4 us and more, as measured on an idle GPU.
constexpr char kLatencies[] =
    "drift_ppb=9100;call_ns=700;record_ns=2100;seen_ns=1300;query_ns=500;jitter_ns=400";
constexpr char kNoLatencies[] =
    "drift_ppb=0;call_ns=1000;record_ns=1280;seen_ns=0;query_ns=10000;jitter_ns=0";

void configure(const std::string& text) {
  static auto* const call = entry<int(const char*)>("fakecuda_configure");
  ASSERT_EQ(call(text.c_str()), 0);
}

HostNanoseconds fake_now() noexcept {
  static auto* const call = entry<std::uint64_t(int)>("fakecuda_now");
  return static_cast<HostNanoseconds>(call(0));
}

void advance(HostNanoseconds nanoseconds) {
  static auto* const call = entry<void(std::int64_t)>("fakecuda_advance");
  call(nanoseconds);
}

// When the GPU will be done with what was queued last.
HostNanoseconds tail_of(CUstream stream) {
  static auto* const call = entry<std::uint64_t(CUstream)>("fakecuda_stream_tail");
  return static_cast<HostNanoseconds>(call(stream));
}

// Lets time pass as a trace does: with an anchor every quarter of a second.
void pass(HostNanoseconds span) {
  for (HostNanoseconds passed = 0; passed < span; passed += kQuarter) {
    advance(kQuarter);
    timeline::refresh();
  }
}

// The end of a span as a mark of its own.
GpuMark end_of(const SampleRef& sample) {
  GpuMark mark = sample->gpu_begin;
  mark.ms += sample->device_ms;
  return mark;
}

class TimelineTest : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    configure(kLatencies);
    timing::host_clock = &fake_now;
  }

  void TearDown() override {
    if (wanted_) want(false);
    configure(kNoLatencies);
    OnDevice::TearDown();
    timing::host_clock = &timing::monotonic_now;
  }

  void want(bool on) {
    wanted_ = on;
    timeline::want(on);
    if (on) timeline::refresh();
  }

  // A span, and where the GPU begins it on the host's clock: `truth_`.
  SampleRef open() {
    SampleRef sample = open_span(stream_);
    truth_ = tail_of(stream_);
    return sample;
  }
  SampleRef short_span() {
    SampleRef sample = open();
    work(stream_, 50 * kMicrosecond);
    close_span(sample);
    advance(kMillisecond);
    return sample;
  }

  // How far a placed mark is from the truth; the stated error covers it.
  static HostNanoseconds distance(const GpuMark& mark, HostNanoseconds truth) {
    HostMoment found;
    EXPECT_EQ(timeline::place(mark, found), Placement::kPlaced);
    EXPECT_LE(std::abs(found.at - truth), found.error);
    return std::abs(found.at - truth);
  }

  [[nodiscard]] static Placement placement(const SampleRef& sample) {
    HostMoment ignored;
    return timeline::place(sample->gpu_begin, ignored);
  }

  HostNanoseconds truth_ = 0;

 private:
  bool wanted_ = false;
};

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

TEST_F(TimelineTest, DriftAddsNothingWithinAnHour) {
  configure("jitter_ns=0");  // so that only the drift is left to differ
  want(true);
  const auto worst_of_a_minute = [&] {
    HostNanoseconds worst = 0;
    for (int i = 0; i < 60; ++i) {
      pass(3 * kQuarter);
      advance(100 * kMillisecond);
      const SampleRef sample = short_span();
      advance(100 * kMillisecond);
      timeline::refresh();
      worst = std::max(worst, distance(sample->gpu_begin, truth_));
    }
    return worst;
  };
  const HostNanoseconds first = worst_of_a_minute();
  pass(3600 * kSecond);
  const HostNanoseconds last = worst_of_a_minute();
  EXPECT_LE(last, 3 * kMicrosecond);
  EXPECT_LE(std::abs(last - first), 300);
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

TEST_F(TimelineTest, ARefreshReadsOutWhatItPlaces) {
  want(true);
  const SampleRef sample = short_span();
  timeline::refresh();
  EXPECT_EQ(sample->load_status(), SampleStatus::kDone);
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
  CUcontext second = nullptr;
  driver::check(entry<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(&second, 0, 0),
                "cuCtxCreate");
  CUstream foreign = nullptr;
  driver::check(table_->cuStreamCreate(&foreign, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
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
  entry<CUresult(CUcontext)>("cuCtxDestroy_v2")(second);
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
  EXPECT_EQ(live("event"), events);
  EXPECT_EQ(placement(sample), Placement::kPlaced) << "numbers are kept longer than events";
  pass(500 * kSecond);
  EXPECT_EQ(placement(sample), Placement::kLost);
}

TEST_F(TimelineTest, AnOpenCaptureStaysUnbroken) {
  short_span();
  for (const CUstreamCaptureMode mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL}) {
    const CUstream captured = make_stream();
    Capture capture(captured, mode);
    const SampleRef sample = short_span();
    std::thread([&] { want(true); }).join();
    pass(kSecond);
    std::thread([] { pass(kSecond); }).join();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_EQ(table_->cuStreamIsCapturing(captured, &status), CUDA_SUCCESS);
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE) << mode;
    want(false);
    EXPECT_EQ(capture.end(), CUDA_SUCCESS) << mode;
    EXPECT_FALSE(driver::warnings_pending());
  }
}

TEST_F(TimelineTest, AGpuThatDoesNotAnswerMakesNoAnchorAndHoldsNobodyUp) {
  want(true);
  const SampleRef sample = short_span();
  timing::device::drain();
  ASSERT_EQ(sample->load_status(), SampleStatus::kDone);
  script("cuEventQuery@1*=600");
  timeline::refresh();
  timeline::refresh();
  EXPECT_EQ(placement(sample), Placement::kNotYet);
  EXPECT_FALSE(driver::warnings_pending());
  script("");
  timeline::refresh();
  EXPECT_LE(distance(sample->gpu_begin, truth_), 3 * kMicrosecond);
}

TEST_F(TimelineTest, ARefusedCallIsOneWarningAndEndsTheAnchorsUntilTheyAreWantedAnew) {
  const auto refresh_as_for_the_first_time = [&] {
    want(true);
    timeline::refresh();
  };
  short_span();
  timing::device::drain();
  const std::uint64_t before = calls_of("any");
  refresh_as_for_the_first_time();
  want(false);
  const std::uint64_t calls = calls_of("any") - before;
  ASSERT_GT(calls, 20U);
  int warned = 0;
  for (std::uint64_t call = 1; call <= calls; ++call) {
    driver::forget_warnings();
    script("any@" + std::to_string(call) + "=999");
    refresh_as_for_the_first_time();
    script("");
    const std::vector<std::string> warnings = driver::take_warnings();
    ASSERT_LE(warnings.size(), 1U) << call;
    const SampleRef sample = short_span();
    timeline::refresh();
    ASSERT_EQ(sample->load_status(), SampleStatus::kDone) << call;
    if (warnings.empty()) {
      ASSERT_LE(distance(sample->gpu_begin, truth_), 3 * kMicrosecond) << call;
    } else {
      ++warned;
      ASSERT_NE(warnings[0].find("host's clock"), std::string::npos) << warnings[0];
      ASSERT_EQ(placement(sample), Placement::kLost) << call;
    }
    EXPECT_FALSE(driver::warnings_pending());
    want(false);
    EXPECT_EQ(live("stream"), 1) << call;
  }
  EXPECT_GT(warned, 10);
}

TEST_F(TimelineTest, AMarkThatIsRefusedLeavesItsSampleAlone) {
  want(true);
  const SampleRef first = short_span();
  const SampleRef second = short_span();
  script("cuEventElapsedTime@2=1");
  timing::device::drain();
  script("");
  timing::device::drain();
  EXPECT_EQ(first->load_status(), SampleStatus::kDone);
  EXPECT_EQ(second->load_status(), SampleStatus::kDone);
  EXPECT_EQ(row("span").device.count, 2U);
  EXPECT_EQ(placement(first), Placement::kLost);
  EXPECT_EQ(driver::take_warnings().size(), 1U);
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

// From here on a context is lost or the driver poisoned, which the process remembers.

// A context that is current and a stream of it, with anchors wanted.
class Loss {
 public:
  Loss() : table(driver::ready()) {
    configure(kLatencies);
    timing::host_clock = &fake_now;
    timeline::want(true);
    driver::check(table.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    driver::check(table.cuCtxPushCurrent(context), "cuCtxPushCurrent");
    driver::check(table.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }

  // A span that is read and could be placed.
  SampleRef placed_span() {
    const SampleRef sample = span(stream, kMillisecond);
    EXPECT_TRUE(wait_for(sample));
    timeline::refresh();
    EXPECT_EQ(place(sample), Placement::kPlaced);
    return sample;
  }

  static Placement place(const SampleRef& sample) {
    HostMoment ignored;
    return timeline::place(sample->gpu_begin, ignored);
  }

  const driver::Table& table;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
};

TEST(TimelineLoss, AResetContextLosesItsAnchorsAndTheNextHasNewOnes) {
  in_own_process([] {
    Loss loss;
    const SampleRef before = loss.placed_span();
    driver::check(entry<CUresult(CUdevice)>("cuDevicePrimaryCtxReset_v2")(0),
                  "cuDevicePrimaryCtxReset");
    timeline::refresh();
    EXPECT_EQ(Loss::place(before), Placement::kLost);
    driver::check(loss.table.cuDevicePrimaryCtxRetain(&loss.context, 0), "Retain");
    driver::check(loss.table.cuCtxPushCurrent(loss.context), "cuCtxPushCurrent");
    driver::check(loss.table.cuStreamCreate(&loss.stream, CU_STREAM_NON_BLOCKING), "Create");
    const SampleRef after = loss.placed_span();
    EXPECT_EQ(Loss::place(before), Placement::kLost);
    EXPECT_FALSE(driver::warnings_pending());
    timeline::want(false);
  });
}

TEST(TimelineLoss, AStickyErrorEndsTheAnchorsAndWhatWasKnownStaysKnown) {
  in_own_process([] {
    Loss loss;
    const SampleRef known = loss.placed_span();
    const SampleRef unknown = span(loss.stream, kMillisecond);
    EXPECT_TRUE(wait_for(unknown));
    EXPECT_EQ(Loss::place(unknown), Placement::kNotYet);
    script("cuEventRecord@1=719:sticky");
    timeline::refresh();
    EXPECT_EQ(driver::blocked.load() & driver::kSticky, driver::kSticky);
    EXPECT_EQ(driver::take_warnings().size(), 1U);
    const std::uint64_t calls = calls_of("any");
    timeline::refresh();
    EXPECT_EQ(Loss::place(known), Placement::kPlaced);
    EXPECT_EQ(Loss::place(unknown), Placement::kLost) << "no anchor can follow any more";
    timeline::want(false);
    EXPECT_EQ(calls_of("any"), calls) << "a poisoned driver was called";
  });
}

TEST(TimelineLoss, AStickyErrorMetByAMarkFailsWhatIsPending) {
  in_own_process([] {
    Loss loss;
    loss.placed_span();
    const SampleRef first = span(loss.stream, kMillisecond);
    const SampleRef second = span(loss.stream, kMillisecond);
    driver::check(loss.table.cuCtxSynchronize(), "cuCtxSynchronize");
    script("cuEventElapsedTime@2=719:sticky");
    timing::device::drain();
    EXPECT_EQ(first->load_status(), SampleStatus::kDone) << "its own time was read before";
    EXPECT_EQ(second->load_status(), SampleStatus::kFailed);
  });
}

TEST(TimelineLoss, ADriverThatIsTakenDownIsNotCalledAgain) {
  in_own_process([] {
    Loss loss;
    const SampleRef known = loss.placed_span();
    entry<void()>("fakecuda_deinit")();
    timeline::refresh();
    const std::uint64_t calls = calls_of("any");
    timeline::refresh();
    EXPECT_EQ(Loss::place(known), Placement::kPlaced);
    timeline::want(false);
    EXPECT_EQ(calls_of("any"), calls);
    EXPECT_FALSE(driver::warnings_pending()) << "the end of a program is no failure";
  });
}

TEST(TimelineLoss, AForkedChildTouchesNothingOfItsParent) {
  in_own_process([] {
    Loss loss;
    const SampleRef sample = loss.placed_span();
    const pid_t child = fork();
    if (child == 0) {
      const std::uint64_t calls = calls_of("any");
      timeline::refresh();
      timeline::want(true);
      timeline::want(false);
      const bool lost = Loss::place(sample) == Placement::kLost;
      timeline::want(false);
      _exit(lost && calls_of("any") == calls ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(Loss::place(sample), Placement::kPlaced);
    timeline::want(false);
  });
}

}  // namespace
}  // namespace gpuprof::tests
