// The timeline among captures, refused calls, lost contexts, poisoned drivers and forks.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "driver/process.hpp"
#include "support/on_timeline.hpp"
#include "support/own_process.hpp"
#include "timing/timeline.hpp"

namespace gpuprof::tests {
namespace {

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

// From here on a context is lost or the driver poisoned, which the process remembers.

// A context that is current and a stream of it, with anchors wanted.
class Loss {
 public:
  Loss() : table(driver::ready()) {
    EXPECT_EQ(configure(kLatencies), 0);
    timing::host_clock = &fake_now;
    timeline::want(true);
    use_primary();
    stream = make_current_stream();
  }

  // A span that is read and could be placed.
  [[nodiscard]] SampleRef placed_span() const {
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
    use_primary();
    loss.stream = make_current_stream();
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
    ASSERT_TRUE(loss.placed_span());
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
    EXPECT_EQ(forked([&] {
                const std::uint64_t calls = calls_of("any");
                timeline::refresh();
                timeline::want(true);
                timeline::want(false);
                const bool lost = Loss::place(sample) == Placement::kLost;
                timeline::want(false);
                return lost && calls_of("any") == calls ? 0 : 1;
              }),
              0);
    EXPECT_EQ(Loss::place(sample), Placement::kPlaced);
    timeline::want(false);
  });
}

}  // namespace
}  // namespace gpuprof::tests
