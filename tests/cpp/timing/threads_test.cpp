// Many threads at once, on the fake driver. Of most use under ThreadSanitizer.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "support/fake.hpp"

namespace gpuprof::tests {
namespace {

using timing::SampleRef;
using timing::SampleStatus;

constexpr int kThreads = 100;
constexpr int kSpans = 200;

// All threads begin together, each with the context current.
class Threads : public OnDevice {
 protected:
  template <typename Work>
  void run(int count, Work&& work_of) {
    std::atomic<int> waiting{0};
    std::vector<std::thread> threads;
    threads.reserve(static_cast<std::size_t>(count));
    for (int index = 0; index < count; ++index) {
      threads.emplace_back([&, index] {
        const driver::CurrentContext current(*table_, context_);
        ++waiting;
        while (waiting.load() < count) std::this_thread::yield();
        work_of(index);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void finish() {
    driver::check(table_->cuCtxSynchronize(), "cuCtxSynchronize");
    timing::device::drain();
  }
};

// Asks everything that may be asked from anywhere, until told to stop.
template <typename Question>
class Asking {
 public:
  explicit Asking(Question question)
      : thread_([this, question] {
          while (!stop_.load()) question();
        }) {}
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;
  ~Asking() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST_F(Threads, EverySpanOfAHundredThreadsCounts) {
  std::vector<CUstream> streams;
  for (int i = 0; i < 8; ++i) streams.push_back(make_stream());
  {
    const Asking drains([] { timing::device::drain(); });
    const Asking asks([] {
      timing::statistics::rows();
      timing::device::pending_counts();
      timing::device::pending_tails();
    });
    run(kThreads, [&](int index) {
      const CUstream stream = streams[static_cast<std::size_t>(index) % streams.size()];
      for (int i = 0; i < kSpans; ++i) span(stream, 0, "everyone");
    });
  }
  finish();
  constexpr std::uint64_t kAll = std::uint64_t{kThreads} * kSpans;
  EXPECT_EQ(row("everyone").device.count, kAll);
  EXPECT_EQ(row("everyone").dropped, 0U);
  EXPECT_EQ(row("everyone").failed, 0U);
}

// Virtual time is one for all threads, so an interval may hold calls of the others too.
TEST_F(Threads, AWaiterOnEachThreadGetsItsOwnTime) {
  constexpr std::int64_t kMicroseconds = 20;
  run(16, [&](int index) {
    const CUstream stream = make_current_stream();
    const std::string path = "waiter " + std::to_string(index);
    for (int i = 0; i < 50; ++i) {
      const SampleRef sample = span(stream, kMicroseconds * 1000, path.c_str());
      ASSERT_TRUE(wait_for(sample));
      ASSERT_EQ(sample->load_status(), SampleStatus::kDone);
      ASSERT_GE(sample->device_ms, static_cast<double>(kMicroseconds) * 1e-3);
    }
    ASSERT_EQ(table_->cuStreamDestroy(stream), CUDA_SUCCESS);
  });
  for (int index = 0; index < 16; ++index) {
    EXPECT_EQ(row("waiter " + std::to_string(index)).device.count, 50U);
  }
}

TEST_F(Threads, ASampleMayBeReadWhileOthersDrain) {
  const Asking drains([] { timing::device::drain(); });
  for (int i = 0; i < 200; ++i) {
    const SampleRef sample = span(stream_);
    run(4, [&](int) {
      ASSERT_TRUE(wait_for(sample));
      ASSERT_EQ(sample->load_status(), SampleStatus::kDone);
      ASSERT_GE(sample->device_ms, 0.0);
    });
  }
}

TEST_F(Threads, ResetsAmongSpansLoseOnlyWhatTheyForget) {
  constexpr std::uint64_t kAll = 16U * kSpans;
  {
    const Asking resets([] { timing::statistics::reset(); });
    const Asking drains([] { timing::device::drain(); });
    run(16, [&](int) {
      for (int i = 0; i < kSpans; ++i) span(stream_, 0, "reset");
    });
  }
  finish();
  EXPECT_LE(row("reset").device.count, kAll);
  timing::statistics::reset();
  span(stream_, 0, "reset");
  finish();
  EXPECT_EQ(row("reset").device.count, 1U);
}

TEST_F(Threads, SpansOfManyContextsKeepApart) {
  run(8, [&](int index) {
    const CUcontext context = make_context();
    const std::string path = "context " + std::to_string(index);
    for (int i = 0; i < 50; ++i) span(nullptr, 1'000'000, path.c_str());
    ASSERT_EQ(table_->cuCtxSynchronize(), CUDA_SUCCESS);
    timing::device::drain();
    SampleRef last = span(nullptr, 1'000'000, path.c_str());
    ASSERT_TRUE(wait_for(last));
    last = SampleRef();
    destroy_context(context);
  });
  timing::device::drain();
  for (int index = 0; index < 8; ++index) {
    EXPECT_EQ(row("context " + std::to_string(index)).device.count, 51U);
  }
}

}  // namespace
}  // namespace gpuprof::tests
