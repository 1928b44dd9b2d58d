#include "timing/gate.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "support/fake.hpp"
#include "timing/watchdog.hpp"

namespace gpuprof::tests {
namespace {

using driver::Error;
using driver::ErrorKind;

constexpr timing::HostNanoseconds kLong = 60'000'000'000;
constexpr timing::HostNanoseconds kShort = 20'000'000;

class BehindAGate : public OnDevice {
 protected:
  [[nodiscard]] bool idle() const {
    return entry<CUresult(CUstream)>("cuStreamQuery")(stream_) == CUDA_SUCCESS;
  }
  void wait() const { driver::check(table_->cuStreamSynchronize(stream_), "cuStreamSynchronize"); }
  std::unique_ptr<timing::Gate> make() {
    return std::make_unique<timing::Gate>(number(stream_), 0);
  }
  static ErrorKind refusal(timing::Gate& gate) {
    try {
      gate.close(kLong);
    } catch (const Error& error) {
      return error.kind();
    }
    ADD_FAILURE() << "no error was thrown";
    return ErrorKind::kUnavailable;
  }
};

TEST_F(BehindAGate, WorkWaitsUntilItIsOpened) {
  const auto gate = make();
  gate->close(kLong);
  work(stream_, 1000);
  EXPECT_TRUE(gate->closed());
  EXPECT_FALSE(idle());
  EXPECT_TRUE(gate->open());
  wait();
  EXPECT_FALSE(gate->closed());
  EXPECT_TRUE(idle());
}

TEST_F(BehindAGate, ItCanBeClosedAgainAtOnce) {
  const auto gate = make();
  for (int i = 0; i < 100; ++i) {
    gate->close(kLong);
    EXPECT_FALSE(idle()) << "closing " << i;
    EXPECT_TRUE(gate->open());
    wait();
  }
}

TEST_F(BehindAGate, TheWatchdogOpensItAfterTheLimit) {
  const auto gate = make();
  gate->close(kShort);
  wait();  // hangs without the watchdog
  EXPECT_FALSE(gate->open()) << "it was not the caller who opened it";
  gate->close(kLong);
  EXPECT_FALSE(idle()) << "a watchdog that came once holds nothing back any more";
  EXPECT_TRUE(gate->open());
  wait();
}

TEST_F(BehindAGate, OpeningWhatIsOpenDoesNothing) {
  const auto gate = make();
  EXPECT_FALSE(gate->open());
  EXPECT_TRUE(idle());
}

TEST_F(BehindAGate, ClosingTwiceIsRefused) {
  const auto gate = make();
  gate->close(kLong);
  EXPECT_EQ(refusal(*gate), ErrorKind::kInvalidState);
  EXPECT_TRUE(gate->open());
  wait();
}

TEST_F(BehindAGate, ACapturingStreamIsRefusedAndItsCaptureGoesOn) {
  const auto gate = make();
  Capture capture(stream_);
  EXPECT_EQ(refusal(*gate), ErrorKind::kInvalidState);
  EXPECT_FALSE(gate->closed());
  EXPECT_EQ(capture.end(), CUDA_SUCCESS);
}

TEST_F(BehindAGate, AGateThatDiesLetsItsWorkGo) {
  auto gate = make();
  gate->close(kLong);
  work(stream_, 1000);
  gate.reset();
  wait();
  EXPECT_TRUE(idle());
}

TEST_F(BehindAGate, ARefusedWaitLeavesItOpen) {
  const auto gate = make();
  script("cuStreamWaitValue32_v2@1=801");
  EXPECT_EQ(refusal(*gate), ErrorKind::kCuda);
  script("");
  EXPECT_FALSE(gate->closed());
  gate->close(kLong);
  EXPECT_TRUE(gate->open());
  wait();
}

TEST_F(BehindAGate, AWaitThatIsRefusedAfterItWasQueuedHoldsNothingBack) {
  const auto gate = make();
  script("cuStreamWaitValue32_v2@1=801:after");
  EXPECT_EQ(refusal(*gate), ErrorKind::kCuda);
  script("");
  wait();
  EXPECT_TRUE(idle());
}

TEST_F(BehindAGate, MemoryThatCannotBeHadIsAnError) {
  script("cuMemHostAlloc@1=2");
  EXPECT_THROW(make(), Error);
}

TEST(Watchdog, SetsItsWordAtTheDeadlineAndNotBefore) {
  std::uint32_t word = 0;
  timing::Watchdog dog(&word);
  const auto begin = timing::monotonic_now();
  dog.arm(7, begin + kShort);
  while (__atomic_load_n(&word, __ATOMIC_ACQUIRE) == 0) {
    ASSERT_LT(timing::monotonic_now() - begin, 20'000'000'000);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GE(timing::monotonic_now() - begin, kShort);
  EXPECT_EQ(__atomic_load_n(&word, __ATOMIC_ACQUIRE), 7U);
  EXPECT_TRUE(dog.disarm());
}

TEST(Watchdog, ADisarmedOneStaysQuiet) {
  std::uint32_t word = 0;
  timing::Watchdog dog(&word);
  dog.arm(7, timing::monotonic_now() + kShort);
  EXPECT_FALSE(dog.disarm());
  std::this_thread::sleep_for(std::chrono::nanoseconds(2 * kShort));
  EXPECT_EQ(__atomic_load_n(&word, __ATOMIC_ACQUIRE), 0U);
}

}  // namespace
}  // namespace gpuprof::tests
