// Graphs that share memory run one after the other, on whichever streams they are launched.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "support/driver_errors.hpp"
#include "support/graphs.hpp"
#include "support/own_process.hpp"

namespace gpuprof::tests {
namespace {

using driver::ErrorKind;
using graphs::CapturedGraph;
using graphs::IoAddresses;
using graphs::LaunchOrder;
using graphs::LaunchResult;

constexpr std::int64_t kMillisecond = 1'000'000;

// A graph that writes 1 to the shared array after a millisecond, and one that reads it at once.
class GraphsInOrder : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    other_stream_ = make_stream();
    shared_ = std::make_unique<Array>(0);
    seen_ = std::make_unique<Array>(9);
    writer_ = captured(stream_, [&] {
      work(stream_, kMillisecond);
      fill(stream_, *shared_, 1);
    });
    reader_ = captured(stream_, [&] { copy(stream_, *shared_, *seen_); });
    writer_->instantiate();
    reader_->instantiate();
  }

  void TearDown() override {
    if (driver::blocked.load() == 0) synchronize();
    writer_.reset();
    reader_.reset();
    order_.reset();
    shared_.reset();
    seen_.reset();
    OnDevice::TearDown();
  }

  void share() {
    order_ = std::make_shared<LaunchOrder>();
    writer_->set_launch_order(order_);
    reader_->set_launch_order(order_);
  }

  void write(CUstream stream) { writer_->launch({number(stream)}); }
  void read(CUstream stream) { reader_->launch({number(stream)}); }
  void synchronize() const { driver::check(table_->cuCtxSynchronize(), "cuCtxSynchronize"); }

  [[nodiscard]] std::uint32_t seen() const {
    synchronize();
    return seen_->value();
  }

  CUstream other_stream_ = nullptr;
  std::shared_ptr<LaunchOrder> order_;
  std::unique_ptr<Array> shared_;
  std::unique_ptr<Array> seen_;
  GraphPtr writer_;
  GraphPtr reader_;
};

TEST_F(GraphsInOrder, WithoutASharedOrderTwoStreamsRunAtOnce) {
  const auto calls = [] { return calls_of("cuEventRecord") + calls_of("cuStreamWaitEvent"); };
  const std::uint64_t before = calls();
  write(stream_);
  read(other_stream_);
  EXPECT_EQ(seen(), 0U);
  EXPECT_EQ(calls(), before) << "a launch that nobody waits for records nothing";
}

TEST_F(GraphsInOrder, OnOneStreamNeedNoWait) {
  const std::uint64_t waits = calls_of("cuStreamWaitEvent");
  share();
  write(stream_);
  read(stream_);
  write(stream_);
  EXPECT_EQ(seen(), 1U);
  EXPECT_EQ(calls_of("cuStreamWaitEvent"), waits);
}

TEST_F(GraphsInOrder, LastAfterTheFirstGraphIsClosed) {
  share();
  write(stream_);
  writer_.reset();
  read(other_stream_);
  EXPECT_EQ(seen(), 1U);
}

TEST_F(GraphsInOrder, ComeInTheOrderOfCallsOverManyGraphs) {
  share();
  write(stream_);
  GraphPtr between = captured(stream_, [&] { work(stream_, kMillisecond); });
  between->instantiate();
  between->set_launch_order(order_);
  between->launch({number(other_stream_)});
  between.reset();
  read(make_stream());
  EXPECT_EQ(seen(), 1U);
}

TEST_F(GraphsInOrder, TellStreamsApartThatHaveHadOneHandle) {
  ASSERT_EQ(configure("reuse=1"), 0);
  share();
  const CUstream first = make_current_stream();
  write(first);
  driver::check(table_->cuStreamDestroy(first), "cuStreamDestroy");
  const CUstream second = make_current_stream();
  ASSERT_EQ(first, second) << "the fake driver gives the handle out again";
  read(second);
  EXPECT_EQ(seen(), 1U);
  table_->cuStreamDestroy(second);
  ASSERT_EQ(configure("reuse=0"), 0);
}

TEST_F(GraphsInOrder, TellTheDefaultStreamsOfTwoThreadsApart) {
  share();
  std::thread([&] {
    driver::check(table_->cuCtxPushCurrent(context_), "cuCtxPushCurrent");
    write(CU_STREAM_PER_THREAD);
  }).join();
  read(CU_STREAM_PER_THREAD);
  EXPECT_EQ(seen(), 1U);
}

TEST_F(GraphsInOrder, WaitForWorkThatWasNoted) {
  for (const bool shared : {true, false}) {
    if (shared) share();
    shared_->set(0);
    read(stream_);
    work(other_stream_, kMillisecond);
    fill(other_stream_, *shared_, 5);
    reader_->note_use(number(other_stream_));
    read(stream_);
    EXPECT_EQ(seen(), 5U) << shared;
  }
}

TEST_F(GraphsInOrder, PutWorkAfterTheNoteBehindTheLaunchesSoFar) {
  share();
  write(stream_);
  reader_->note_use(number(other_stream_));
  copy(other_stream_, *shared_, *seen_);
  EXPECT_EQ(seen(), 1U);
}

// What is noted stays noted over a launch on its own stream.
TEST_F(GraphsInOrder, WaitForNotedWorkOnAThirdStreamToo) {
  share();
  work(other_stream_, kMillisecond);
  fill(other_stream_, *shared_, 5);
  writer_->note_use(number(other_stream_));
  GraphPtr between = captured(stream_, [&] { work(stream_, 1); });
  between->instantiate();
  between->set_launch_order(order_);
  between->launch({number(make_stream())});
  read(stream_);
  EXPECT_EQ(seen(), 5U);
}

TEST_F(GraphsInOrder, AreKeptWhereTheRecordOfALaunchFailed) {
  share();
  script("cuEventRecord@1=2");
  write(stream_);
  script("");
  read(other_stream_);
  EXPECT_EQ(seen(), 1U);
  shared_->set(0);
  write(stream_);
  read(other_stream_);
  EXPECT_EQ(seen(), 1U) << "and the next ones by events again";
}

TEST_F(GraphsInOrder, AreKeptWhereANoteOfUseFailed) {
  share();
  work(other_stream_, kMillisecond);
  fill(other_stream_, *shared_, 5);
  script("cuEventRecord@1=2");
  EXPECT_EQ(error_from([&] { reader_->note_use(number(other_stream_)); }).code(),
            CUDA_ERROR_OUT_OF_MEMORY);
  script("");
  read(stream_);
  EXPECT_EQ(seen(), 5U);
}

TEST_F(GraphsInOrder, ALaunchThatCannotWaitIsNotMade) {
  share();
  write(stream_);
  script("cuStreamWaitEvent@1=2");
  EXPECT_EQ(error_from([&] { read(other_stream_); }).code(), CUDA_ERROR_OUT_OF_MEMORY);
  script("");
  EXPECT_EQ(reader_->replays(), 0U);
  read(other_stream_);
  EXPECT_EQ(seen(), 1U);
}

TEST_F(GraphsInOrder, AnUpdateBetweenGraphsThatShareTheLockReturns) {
  share();
  GraphPtr longer = captured(stream_, [&] {
    work(stream_, 2 * kMillisecond);
    fill(stream_, *shared_, 7);
  });
  longer->instantiate();
  longer->set_launch_order(order_);
  graphs::UpdateRefusal refusal;
  write(stream_);
  ASSERT_TRUE(writer_->update(*longer, {}, refusal));
  ASSERT_TRUE(writer_->update(*writer_, {}, refusal));
  write(stream_);
  read(other_stream_);
  EXPECT_EQ(seen(), 7U);
}

std::atomic<int> released{0};

// The event of its last launch is the others' to wait for, and tells when the payload can go.
TEST_F(GraphsInOrder, WhatAClosedGraphNeedsGoesWhenItsLastLaunchIsOver) {
  share();
  released = 0;
  writer_->retain({&released, {[](void*) { ++released; }}});
  {
    Gate gate(*table_, stream_);
    write(stream_);
    writer_.reset();
    graphs::release_finished();
    EXPECT_EQ(released, 0);
    read(other_stream_);
    gate.open();
    EXPECT_EQ(seen(), 1U);
  }
  graphs::release_finished();
  EXPECT_EQ(released, 1);
}

TEST_F(GraphsInOrder, AnUpdateWaitsForTheEarlierLaunchesInAnyOrder) {
  share();
  released = 0;
  writer_->retain({&released, {[](void*) { ++released; }}});
  graphs::UpdateRefusal refusal;
  {
    Gate gate(*table_, stream_);
    write(stream_);
    ASSERT_TRUE(writer_->update(*writer_, {}, refusal));
    graphs::release_finished();
    EXPECT_EQ(released, 0);
    gate.open();
    synchronize();
  }
  write(stream_);
  graphs::release_finished();
  EXPECT_EQ(released, 1) << "later launches do not matter";
}

TEST_F(GraphsInOrder, WhileAFrameworkLaunchesOtherThreadsStayOut) {
  share();
  writer_->begin_external_launch({number(stream_)});
  EXPECT_EQ(reader_->launch({number(stream_), 0, nullptr, nullptr}), LaunchResult::kLaunched)
      << "the same thread may go on";
  std::promise<void> tried;
  std::thread other([&] {
    driver::check(table_->cuCtxPushCurrent(context_), "cuCtxPushCurrent");
    tried.set_value();
    read(other_stream_);
  });
  tried.get_future().wait();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(reader_->replays(), 1U);
  driver::check(table_->cuGraphLaunch(static_cast<CUgraphExec>(writer_->exec()), stream_),
                "cuGraphLaunch");
  writer_->end_external_launch({number(stream_)}, true);
  other.join();
  EXPECT_EQ(reader_->replays(), 2U);
  EXPECT_EQ(seen(), 1U);
}

TEST_F(GraphsInOrder, WhileTheOrderIsLockedOtherThreadsStayOut) {
  share();
  writer_->lock_launch_order();
  write(stream_);
  std::promise<void> tried;
  std::thread other([&] {
    driver::check(table_->cuCtxPushCurrent(context_), "cuCtxPushCurrent");
    tried.set_value();
    read(other_stream_);
  });
  tried.get_future().wait();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(reader_->replays(), 0U);
  writer_->unlock_launch_order();
  other.join();
  EXPECT_EQ(reader_->replays(), 1U);
  EXPECT_EQ(seen(), 1U);
}

TEST_F(GraphsInOrder, WhileTheOrderIsLockedAThreadMayLaunchForTheOneThatHoldsIt) {
  share();
  writer_->lock_launch_order();
  write(stream_);
  const graphs::LaunchRequest request{number(stream_)};
  std::thread([&] { EXPECT_EQ(reader_->launch(request), LaunchResult::kLaunched); }).join();
  writer_->unlock_launch_order();
  EXPECT_EQ(seen(), 1U);
}

TEST_F(GraphsInOrder, AGraphMayBeClosedWhileItsOrderIsLocked) {
  share();
  writer_->lock_launch_order();
  std::thread([&] { writer_->close(); }).join();
  writer_->unlock_launch_order();
  EXPECT_TRUE(writer_->closed());
  read(other_stream_);
  EXPECT_EQ(reader_->replays(), 1U);
  EXPECT_EQ(error_from([&] { writer_->lock_launch_order(); }).kind(), ErrorKind::kInvalidState);
}

TEST_F(GraphsInOrder, AGraphMayBeClosedWhileAFrameworkLaunchesIt) {
  share();
  writer_->begin_external_launch({number(stream_)});
  std::thread([&] { writer_->close(); }).join();
  driver::check(
      table_->cuGraphLaunch(static_cast<CUgraphExec>(nullptr), stream_) == CUDA_ERROR_INVALID_VALUE
          ? CUDA_SUCCESS
          : CUDA_ERROR_UNKNOWN,
      "cuGraphLaunch");
  writer_->end_external_launch({number(stream_)}, false);
  EXPECT_TRUE(writer_->closed());
  read(other_stream_);
  EXPECT_EQ(reader_->replays(), 1U);
}

TEST_F(GraphsInOrder, AGraphOfADeadContextIsNotWaitedFor) {
  const std::uint64_t waits = calls_of("cuStreamWaitEvent");
  order_ = std::make_shared<LaunchOrder>();
  const CUcontext second = make_context();
  CUstream stream = make_current_stream();
  GraphPtr lost = captured(stream, [&] { work(stream, kMillisecond); });
  lost->instantiate();
  lost->set_launch_order(order_);
  lost->launch({number(stream)});
  destroy_context(second);
  reader_->set_launch_order(order_);
  read(stream_);
  EXPECT_EQ(seen(), 0U);
  EXPECT_EQ(calls_of("cuStreamWaitEvent"), waits);
  EXPECT_EQ(error_from([&] { lost->launch({number(stream_)}); }).code(),
            CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST(GraphsInOrderAndFork, AChildIsRefusedAndMayLetGoOfEverything) {
  in_own_process([] {
    use_primary();
    CUstream stream = make_current_stream();
    auto order = std::make_shared<LaunchOrder>();
    GraphPtr graph = captured(stream, [&] { work(stream, kMillisecond); });
    graph->instantiate();
    graph->set_launch_order(order);
    graph->retain({&order, {[](void*) {}}});
    graph->launch({number(stream)});
    // Another thread is in the midst of a framework's launch when the process is forked.
    std::promise<void> begun;
    std::promise<void> may_end;
    std::thread launcher([&] {
      graph->begin_external_launch({number(stream)});
      begun.set_value();
      may_end.get_future().wait();
      graph->end_external_launch({number(stream)}, false);
    });
    begun.get_future().wait();
    const int status = forked([&] {
      const std::uint64_t calls = calls_of("any");
      const std::uintptr_t nothing[] = {0};
      IoAddresses at{nothing};
      const auto error = error_from([&] { graph->launch({number(stream), 0, nullptr, &at}); });
      if (error.kind() != ErrorKind::kForked) return 1;
      if (error_from([&] { graph->note_use(number(stream)); }).kind() != ErrorKind::kForked) {
        return 2;
      }
      graph.reset();
      order.reset();
      return calls_of("any") == calls ? 0 : 3;
    });
    EXPECT_EQ(status, 0);
    may_end.set_value();
    launcher.join();
    graph->launch({number(stream)});
    EXPECT_EQ(graph->replays(), 2U) << "the parent goes on";
  });
}

}  // namespace
}  // namespace gpuprof::tests
