// What tests of the timeline share: a fake GPU whose clock drifts against the host's, and which
// tells the host late and never quite the same, as the real one does.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "support/fake.hpp"
#include "timing/timeline.hpp"

namespace gpuprof::tests {

using timing::GpuMark;
using timing::HostNanoseconds;
using timing::SampleRef;
using timing::SampleStatus;
using timing::timeline::HostMoment;
using timing::timeline::Placement;

namespace timeline = timing::timeline;

inline constexpr HostNanoseconds kMicrosecond = 1'000;
inline constexpr HostNanoseconds kMillisecond = 1'000'000;
inline constexpr HostNanoseconds kSecond = 1'000'000'000;
inline constexpr HostNanoseconds kQuarter = kSecond / 4;

// Brackets of 5.4 us and more, as measured on an idle GPU.
inline constexpr char kLatencies[] =
    "drift_ppb=9100;call_ns=700;record_ns=2100;seen_ns=1300;query_ns=500;jitter_ns=400";
inline constexpr char kNoLatencies[] =
    "drift_ppb=0;call_ns=1000;record_ns=1280;seen_ns=0;query_ns=10000;jitter_ns=0";

inline HostNanoseconds fake_now() noexcept {
  static auto* const call = entry<std::uint64_t()>("fakecuda_now");
  return static_cast<HostNanoseconds>(call());
}

inline void advance(HostNanoseconds nanoseconds) {
  static auto* const call = entry<void(std::int64_t)>("fakecuda_advance");
  call(nanoseconds);
}

// When the GPU will be done with what was queued last.
inline HostNanoseconds tail_of(CUstream stream) {
  static auto* const call = entry<std::uint64_t(CUstream)>("fakecuda_stream_tail");
  return static_cast<HostNanoseconds>(call(stream));
}

// Lets time pass as a trace does: with an anchor every quarter of a second.
inline void pass(HostNanoseconds span) {
  for (HostNanoseconds passed = 0; passed < span; passed += kQuarter) {
    advance(kQuarter);
    timeline::refresh();
  }
}

class TimelineTest : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    ASSERT_EQ(configure(kLatencies), 0);
    timing::host_clock = &fake_now;
  }

  void TearDown() override {
    if (wanted_) want(false);
    EXPECT_EQ(configure(kNoLatencies), 0);
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

}  // namespace gpuprof::tests
