// Calls that gpuprof's own thread makes for a caller that waits for them as long as it likes.
#include "driver/cuda_call_thread.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "driver/cuda_thread_state.hpp"
#include "support/fake.hpp"
#include "support/own_process.hpp"

namespace gpuprof::tests {
namespace {

using driver::CallElsewhere;

struct Call {
  std::thread::id thread;
  CUcontext context = nullptr;
  std::atomic<bool> may_end{true};

  static void make(void* data) noexcept {
    auto& call = *static_cast<Call*>(data);
    call.thread = std::this_thread::get_id();
    driver::loaded_or_null()->cuCtxGetCurrent(&call.context);
    while (!call.may_end.load()) std::this_thread::yield();
  }
};

constexpr driver::HostNanoseconds kLong = 60'000'000'000;

bool made(Call& call) {
  CallElsewhere elsewhere(&Call::make, &call);
  return elsewhere.begun() && elsewhere.done(driver::monotonic_now() + kLong);
}

class CallThreadTest : public OnDevice {};

TEST_F(CallThreadTest, ACallRunsOnAnotherThreadWithTheContextOfItsCaller) {
  Call call;
  ASSERT_TRUE(made(call));
  EXPECT_NE(call.thread, std::this_thread::get_id());
  EXPECT_EQ(call.context, context_);
  const CUcontext second = make_context();
  ASSERT_TRUE(made(call));
  EXPECT_EQ(call.context, second);
  destroy_context(second);
}

TEST_F(CallThreadTest, ACallAfterAPauseWakesTheThread) {
  Call call;
  ASSERT_TRUE(made(call));
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_TRUE(made(call));
}

TEST_F(CallThreadTest, ACallThatTakesLongerIsWaitedForWhileOthersMakeTheirOwn) {
  Call call;
  call.may_end = false;
  CallElsewhere elsewhere(&Call::make, &call);
  ASSERT_TRUE(elsewhere.begun());
  EXPECT_FALSE(elsewhere.done(driver::monotonic_now() + 1'000));
  Call other;
  EXPECT_FALSE(CallElsewhere(&Call::make, &other).begun());
  std::thread ends([&] { call.may_end = true; });
  elsewhere.wait();
  ends.join();
  EXPECT_TRUE(made(other));
}

TEST_F(CallThreadTest, CallsOfManyThreadsAreEachMadeOnce) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 5'000;
  std::atomic<int> count{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      const auto add = [](void* data) noexcept { ++*static_cast<std::atomic<int>*>(data); };
      for (int k = 0; k < kCalls; ++k) {
        CallElsewhere elsewhere(add, &count);
        if (!elsewhere.begun()) {
          ++count;
        } else if (!elsewhere.done(driver::monotonic_now())) {
          elsewhere.wait();
        }
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(count, kThreads * kCalls);
}

TEST_F(CallThreadTest, AContextThatIsGoneIsTheCallersToMeet) {
  const CUcontext second = make_context();
  std::thread([&] { destroy_context(second); }).join();
  Call call;
  EXPECT_FALSE(CallElsewhere(&Call::make, &call).begun());
  CUcontext gone = nullptr;
  table_->cuCtxPopCurrent(&gone);
}

TEST_F(CallThreadTest, AForkedChildMakesItsOwnCalls) {
  Call call;
  ASSERT_TRUE(made(call));
  EXPECT_EQ(forked([&] { return CallElsewhere(&Call::make, &call).begun() ? 1 : 0; }), 0);
}

}  // namespace
}  // namespace gpuprof::tests
