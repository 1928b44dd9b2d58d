// Whether there is surely room in a stream's queue: the rule on made-up times, and what it asks of
// the fake driver.
#include "timing/queues.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "support/fake.hpp"
#include "timing/queue_progress.hpp"

namespace gpuprof::tests {
namespace {

using timing::HostNanoseconds;
using timing::QueueCall;
using timing::QueuePlace;
using timing::QueueProgress;
using timing::SampleRef;

constexpr HostNanoseconds kMicrosecond = 1'000;
constexpr HostNanoseconds kMillisecond = 1'000'000;

// Calls every `every` on a queue of which `latency` is how long something is in it; below 0: what
// was queued never ends.
struct Host {
  QueueProgress queue;
  HostNanoseconds now = 0;
  HostNanoseconds every = 2 * kMicrosecond;
  HostNanoseconds took = kMicrosecond;
  HostNanoseconds idle_until = 0;
  bool is_lock_slow = true;
  int looks = 0;

  // For so long. Returns when the queue had no room for the first time, -1 for never.
  HostNanoseconds run(HostNanoseconds how_long, HostNanoseconds latency) {
    HostNanoseconds first = -1;
    for (const HostNanoseconds end = now + how_long; now < end; now += every) {
      if (queue.add(now, 1, is_lock_slow)) {
        ++looks;
        queue.begin_look(now);
        if (latency >= 0) queue.note_complete(now - latency);
        queue.end_look(now <= idle_until);
      }
      if (!queue.has_room() && first < 0) first = now;
      if (queue.is_deep()) queue.note_call(took);
    }
    return first;
  }

  // Until the queue is three milliseconds deep, in small steps.
  HostNanoseconds deepen() {
    HostNanoseconds first = -1;
    for (HostNanoseconds latency = 0; latency < 3 * kMillisecond; latency += 50 * kMicrosecond) {
      first = std::max(first, run(250 * kMicrosecond, latency));
    }
    return first;
  }
};

TEST(QueueProgress, HasRoomForAMillisecondAfterTheStreamWasIdle) {
  Host host;
  host.every = 50 * kMicrosecond;
  const HostNanoseconds first = host.run(5 * kMillisecond, -1);
  EXPECT_GE(first, QueueProgress::kRecent);
  EXPECT_LE(first, QueueProgress::kRecent + QueueProgress::kLookEvery);
}

TEST(QueueProgress, WhereTheLockComesBackAtOnceItHasRoomUntilOthersCouldHaveFilledIt) {
  for (const HostNanoseconds latency : {-1, 300'000}) {
    Host host;
    host.is_lock_slow = false;
    host.every = 5 * kMicrosecond;
    host.idle_until = 1;
    EXPECT_EQ(host.run(kMillisecond, latency), QueueProgress::kFresh);
    EXPECT_FALSE(host.queue.has_room());
    EXPECT_EQ(host.queue.watch_time(), 0);
  }
}

TEST(QueueProgress, HasRoomForMoreThanAFewEntriesWhereThereWasNoTimeForAsManyHostFunctions) {
  for (const HostNanoseconds every : {600, 1'000, 1'500, 2'500}) {
    Host host;
    host.every = every;
    const HostNanoseconds first = host.run(kMillisecond, -1);
    const auto few = static_cast<HostNanoseconds>(QueueProgress::kFewEntries);
    EXPECT_LE(first, std::max(few * every, QueueProgress::kFresh + every));
    EXPECT_GE(first / every, few);
  }
}

TEST(QueueProgress, WhatIsReservedAndNotUsedGivesNoMoreTime) {
  Host host;
  host.run(10 * kMicrosecond, -1);
  host.queue.reserve(400);
  host.every = 5 * kMicrosecond;
  EXPECT_LE(host.run(kMillisecond, -1), QueueProgress::kFresh + host.every);
}

TEST(QueueProgress, HasRoomForNoMoreThanTheMostEntriesHoweverFast) {
  Host host;
  host.every = kMicrosecond / 10;
  const HostNanoseconds first = host.run(5 * kMillisecond, -1);
  EXPECT_EQ(first / host.every, static_cast<HostNanoseconds>(QueueProgress::kMostEntries));
}

TEST(QueueProgress, WhatFlowedWhileTheLockWasHeldHasRoomForMoreUntilThatIsQueued) {
  Host host;
  host.every = 25 * kMicrosecond;
  host.deepen();
  EXPECT_FALSE(host.queue.has_room());
  const std::uint64_t completed = host.queue.completed();
  EXPECT_FALSE(host.queue.has_flowed(completed + 1));
  EXPECT_TRUE(host.queue.has_flowed(completed));
  EXPECT_TRUE(host.queue.has_room());
  const HostNanoseconds shown = host.now;
  const HostNanoseconds first = host.run(50 * kMillisecond, 3 * kMillisecond) - shown;
  EXPECT_EQ(first / host.every, static_cast<HostNanoseconds>(QueueProgress::kMostEntries) - 1);
}

TEST(QueueProgress, IsNotWatchedWithFewEntriesBecauseTheCallWouldComeLate) {
  Host host;
  host.every = kMillisecond / 20;
  host.run(kMillisecond / 4, -1);
  EXPECT_EQ(host.queue.watch_time(), 0);
  host.run(kMillisecond, -1);
  EXPECT_GT(host.queue.watch_time(), 0);
}

TEST(QueueProgress, IsWatchedAgainOnlyAWhileAfterNothingFlowed) {
  Host host;
  host.run(kMillisecond, -1);
  EXPECT_GT(host.queue.watch_time(), 0);
  host.queue.note_no_flow();
  host.run(QueueProgress::kWatchAgain - kMillisecond, 100 * kMicrosecond);
  EXPECT_EQ(host.queue.watch_time(), 0);
  host.run(2 * kMillisecond, 100 * kMicrosecond);
  EXPECT_GT(host.queue.watch_time(), 0);
}

TEST(QueueProgress, ADeepQueueThatMovesHasRoom) {
  Host host;
  host.every = 100 * kMicrosecond;
  EXPECT_EQ(host.deepen(), -1);
  EXPECT_EQ(host.run(50 * kMillisecond, 3 * kMillisecond), -1);
  EXPECT_TRUE(host.queue.is_deep());
}

TEST(QueueProgress, ADeepQueueThatStopsHasNoRoomSoonAfter) {
  Host host;
  host.every = 100 * kMicrosecond;
  host.deepen();
  const HostNanoseconds stopped = host.now;
  const HostNanoseconds first = host.run(5 * kMillisecond, -1);
  EXPECT_GT(first, stopped);
  EXPECT_LE(first, stopped + QueueProgress::kRecent + QueueProgress::kLookEvery);
}

TEST(QueueProgress, ADeepQueueWhoseCallsAreSlowHasNoRoomAlthoughItMoves) {
  Host host;
  host.every = 100 * kMicrosecond;
  host.deepen();
  EXPECT_TRUE(host.queue.has_room());
  host.took = 2 * QueueProgress::kSlowEntry;
  host.run(kMillisecond, 3 * kMillisecond);
  EXPECT_FALSE(host.queue.has_room());
}

TEST(QueueProgress, ADeepQueueHasNoRoomWithTooManyEntriesOfOurs) {
  Host host;
  host.run(2 * kMillisecond, 20 * kMicrosecond);
  EXPECT_TRUE(host.queue.has_room());
  host.deepen();
  EXPECT_FALSE(host.queue.has_room());
}

TEST(QueueProgress, WhatIsReservedCountsAsQueuedAndEndsAtTheLimit) {
  QueueProgress queue;
  queue.add(0, 1, /*is_lock_slow=*/true);
  std::uint64_t reserved = 0;
  while (queue.has_room()) {
    const std::uint64_t more = queue.reserve(10);
    EXPECT_GE(more, 1U);
    EXPECT_LE(more, 10U);
    reserved += more;
  }
  EXPECT_EQ(reserved, QueueProgress::kFewEntries - 1);
}

TEST(QueueProgress, HasRoomAgainOnceTheStreamIsIdleOrMoves) {
  Host host;
  host.run(10 * kMillisecond, -1);
  EXPECT_FALSE(host.queue.has_room());
  Host idle = host;
  idle.idle_until = 20 * kMillisecond;
  idle.run(QueueProgress::kLookEvery, -1);
  EXPECT_TRUE(idle.queue.has_room());
  host.run(kMillisecond, 20 * kMicrosecond);
  EXPECT_TRUE(host.queue.has_room());
}

TEST(QueueProgress, IsAskedOnceIn200MicrosecondsOrIn50WhereThatGivesRoom) {
  Host few;
  few.every = 20 * kMicrosecond;
  few.run(10 * kMillisecond, 0);
  EXPECT_EQ(few.looks, 50);
  Host many;
  many.run(10 * kMillisecond, 50 * kMicrosecond);
  EXPECT_GT(many.looks, 50);
  EXPECT_LE(many.looks, 200);
  Host deep;
  deep.run(10 * kMillisecond, 500 * kMicrosecond);
  EXPECT_LE(deep.looks, 52);
}

HostNanoseconds host_time = 0;

void note_slow_lock() {
  for (int i = 0; i < 2; ++i) QueueCall::note_lock_wait(5 * kMillisecond);
}

class QueuesTest : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    host_time += 1'000 * kMillisecond;
    timing::host_clock = +[]() noexcept { return host_time; };
  }
  void TearDown() override {
    timing::host_clock = &timing::monotonic_now;
    OnDevice::TearDown();
  }

  [[nodiscard]] static bool has_room(CUstream stream) {
    const QueuePlace place{number(stream)};
    QueueCall call(place, 1);
    const bool room = call.has_room();
    if (!room) call.look();
    return room;
  }
};

TEST_F(QueuesTest, AnIdleStreamHasRoom) {
  EXPECT_TRUE(has_room(stream_));
  host_time += 100 * kMillisecond;
  EXPECT_TRUE(has_room(stream_));
}

TEST_F(QueuesTest, ABusyStreamThatIsNotKnownHasNoneUntilItMoves) {
  Gate gate(*table_, stream_);
  EXPECT_FALSE(has_room(stream_));
  EXPECT_FALSE(has_room(stream_));
  gate.open();
  driver::check(table_->cuCtxSynchronize(), "cuCtxSynchronize");
  host_time += kMillisecond;
  EXPECT_FALSE(has_room(stream_)) << "it is asked without the lock first";
  EXPECT_TRUE(has_room(stream_));
}

TEST_F(QueuesTest, OurRecordsShowThatADeepStreamMovesWhereTheLockIsSlowToComeBack) {
  note_slow_lock();
  EXPECT_TRUE(has_room(stream_));
  std::vector<SampleRef> spans;
  for (int i = 0; i < 100; ++i) {
    host_time += 100 * kMicrosecond;
    work(stream_, 100 * kMicrosecond);
    if (i < 30) continue;  // three milliseconds deep
    static auto* const advance = entry<void(std::int64_t)>("fakecuda_advance");
    spans.push_back(span(stream_));
    const bool room = has_room(stream_);
    EXPECT_TRUE(i < 70 || room) << i;
    advance(100 * kMicrosecond);
  }
  driver::check(table_->cuCtxSynchronize(), "cuCtxSynchronize");
}

TEST_F(QueuesTest, MarksShowItWhereNothingOfOursIsRead) {
  EXPECT_TRUE(has_room(stream_));
  work(stream_, 5 * kMillisecond);
  const std::uint64_t records = calls_of("cuEventRecord");
  for (int i = 0; i < 20; ++i) {
    host_time += 250 * kMicrosecond;
    static_cast<void>(has_room(stream_));
  }
  const std::uint64_t marks = (calls_of("cuEventRecord") - records) / 2;
  EXPECT_GE(marks, 5U);
  EXPECT_LE(marks, 10U);
  driver::check(table_->cuCtxSynchronize(), "cuCtxSynchronize");
}

TEST_F(QueuesTest, AStreamThatIsCapturedIsNotAsked) {
  const Capture capture(stream_);
  const std::uint64_t asked = calls_of("cuStreamQuery");
  EXPECT_TRUE(has_room(stream_));
  EXPECT_EQ(calls_of("cuStreamQuery"), asked);
}

TEST_F(QueuesTest, AskingBreaksNoCaptureOfAnotherStream) {
  const CUstream other = make_stream();
  Capture capture(other);
  EXPECT_TRUE(has_room(stream_));
  work(other, kMicrosecond);
  EXPECT_EQ(capture.end(), CUDA_SUCCESS);
}

TEST_F(QueuesTest, AStreamOfALostContextIsNotTouched) {
  const CUcontext second = make_context();
  const CUstream theirs = make_current_stream();
  EXPECT_TRUE(has_room(theirs));
  timing::EventClock& clock = *span(theirs)->events;
  const QueuePlace place{number(theirs), 0, &clock};
  destroy_context(second);
  host_time += 100 * kMillisecond;
  QueueCall call(place, 1);  // the fake driver aborts if it is
  EXPECT_TRUE(call.has_room());
}

TEST_F(QueuesTest, TheDefaultStreamsOfTwoThreadsAreTwoQueues) {
  const auto per_thread = reinterpret_cast<CUstream>(2);
  Gate gate(*table_, per_thread);
  EXPECT_FALSE(has_room(per_thread));
  std::thread([&] {
    const driver::CurrentContext current(*table_, context_);
    EXPECT_TRUE(has_room(per_thread));
  }).join();
  gate.open();
}

TEST_F(QueuesTest, TheDefaultStreamsOfTwoContextsAreTwoQueues) {
  Gate gate(*table_, nullptr);
  EXPECT_FALSE(has_room(nullptr));
  const CUcontext second = make_context();
  EXPECT_TRUE(has_room(nullptr));
  destroy_context(second);
  gate.open();
}

TEST_F(QueuesTest, ManyStreamsAreForgottenAndAskedAgain) {
  std::vector<CUstream> streams;
  for (int i = 0; i < 1'000; ++i) {
    streams.push_back(make_stream());
    EXPECT_TRUE(has_room(streams.back()));
  }
  Gate gate(*table_, streams.front());
  host_time += QueueProgress::kRecent;
  EXPECT_FALSE(has_room(streams.front()));
}

TEST_F(QueuesTest, WhereTheLockIsSlowToComeBackAStreamThatFlowsIsWatchedForRoom) {
  EXPECT_TRUE(has_room(stream_));
  std::vector<SampleRef> spans;
  const auto queue_one = [&] {
    host_time += 10 * kMicrosecond;
    work(stream_, 100 * kMicrosecond);
    spans.push_back(span(stream_));
    return has_room(stream_);
  };
  while (queue_one()) {
  }
  EXPECT_LE(spans.size(), QueueProgress::kFewEntries);
  note_slow_lock();
  EXPECT_EQ(configure("mode=auto;query_ns=20000"), 0);  // asking takes time
  EXPECT_TRUE(queue_one());
  driver::check(table_->cuCtxSynchronize(), "cuCtxSynchronize");
}

TEST_F(QueuesTest, AStreamThatStandsStillIsWatchedOnceInAWhile) {
  EXPECT_TRUE(has_room(stream_));
  Gate gate(*table_, stream_);
  note_slow_lock();
  const auto begun = timing::monotonic_now();
  while (has_room(stream_)) {
  }
  const std::uint64_t asked = calls_of("cuStreamQuery");
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(has_room(stream_));
  EXPECT_LE(calls_of("cuStreamQuery"), asked + 100);
  EXPECT_LT(timing::monotonic_now() - begun, 1'000 * kMillisecond);
  gate.open();
}

// With the real clock, where a thread reserves room for its next calls.
TEST_F(QueuesTest, FastCallsOnAStreamThatStandsStillHaveRoomForNoMoreThanTheMostEntries) {
  timing::host_clock = &timing::monotonic_now;
  CUstream stream = make_stream();
  EXPECT_TRUE(has_room(stream));
  Gate gate(*table_, stream);
  std::uint64_t room = 0;
  for (int i = 0; i < 1'000; ++i) room += has_room(stream) ? 1 : 0;
  EXPECT_LE(room, QueueProgress::kMostEntries);
}

TEST_F(QueuesTest, WhatIsReservedOnOneStreamIsNotOnAnother) {
  timing::host_clock = &timing::monotonic_now;
  CUstream stuck = make_stream();
  CUstream idle = make_stream();
  Gate gate(*table_, stuck);
  while (has_room(stuck)) {
  }
  EXPECT_TRUE(has_room(idle));
  EXPECT_FALSE(has_room(stuck));
}

}  // namespace
}  // namespace gpuprof::tests
