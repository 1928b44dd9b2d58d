#include "timing/listeners.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "driver/host_clock.hpp"
#include "timing/path.hpp"

namespace gpuprof::timing {
namespace {

using listeners::attention;

std::uint32_t bits() { return attention.load(); }

// A finished sample of a path, which ended `after` the queue was made.
SampleRef finished(const char* name, HostNanoseconds after = 0) {
  SampleRef sample(make_sample());
  sample->path = &path_below(root_path(), name);
  sample->host_end = host_now() + after;
  sample->finish(SampleStatus::kDone);
  return sample;
}

void send(const char* name, int count = 1, HostNanoseconds after = 0) {
  for (int i = 0; i < count; ++i) deliver(finished(name, after).get());
}

TEST(Listeners, NobodyListensUntilThereIsAQueue) {
  EXPECT_EQ(bits(), 0U);
  {
    const SampleQueue queue("f", {});
    EXPECT_EQ(bits(), listeners::kListening);
  }
  EXPECT_EQ(bits(), 0U);
  send("nobody");
  EXPECT_EQ(listeners::queued.load(), 0U);
}

TEST(Listeners, ABatchIsDueAndHalfAQueueUrgent) {
  SampleQueue queue("f", {}, 1024);
  send("step", 255);
  EXPECT_EQ(bits(), listeners::kListening);
  send("step");
  EXPECT_EQ(bits(), listeners::kListening | listeners::kDue);
  send("step", 256);
  EXPECT_EQ(bits(), listeners::kListening | listeners::kDue | listeners::kUrgent);
  listeners::take_notice(host_now());
  EXPECT_EQ(bits(), listeners::kListening);
  EXPECT_EQ(queue.take().size(), 512U);
}

TEST(Listeners, WhatWaitsForASecondIsDueAndForTenUrgent) {
  const SampleQueue queue("f", {});
  send("step", 1, listeners::kDueAfter - 500'000'000);
  EXPECT_EQ(bits(), listeners::kListening);
  send("step", 1, listeners::kDueAfter);
  EXPECT_EQ(bits(), listeners::kListening | listeners::kDue);
  send("step", 1, listeners::kUrgentAfter);
  EXPECT_EQ(bits(), listeners::kListening | listeners::kDue | listeners::kUrgent);
}

TEST(Listeners, TheGpuIsAskedOnceASecond) {
  const SampleQueue queue("f", {});
  const HostNanoseconds now = host_now();
  EXPECT_FALSE(listeners::should_drain(now));
  EXPECT_TRUE(listeners::should_drain(now + listeners::kDueAfter));
  EXPECT_FALSE(listeners::should_drain(now + listeners::kDueAfter + 1));
}

TEST(Listeners, OneCallerAtATimeTakes) {
  SampleQueue queue("f", {});
  EXPECT_TRUE(queue.begin());
  EXPECT_FALSE(queue.begin());
  bool elsewhere = true;
  std::thread([&] { elsewhere = queue.begin(); }).join();
  EXPECT_FALSE(elsewhere);
  queue.end();
  EXPECT_TRUE(queue.begin());
}

TEST(Listeners, WhatIsBeingTakenIsNotDueAgain) {
  SampleQueue queue("f", {});
  EXPECT_TRUE(queue.begin());
  send("step", 300);
  EXPECT_EQ(bits(), listeners::kListening);
  queue.end();
  send("step");
  EXPECT_EQ(bits(), listeners::kListening | listeners::kDue);
}

TEST(Listeners, AQueueThatGoesGivesItsSamplesBack) {
  const SampleRef sample = finished("step");
  {
    SampleQueue queue("f", {});
    deliver(sample.get());
    EXPECT_EQ(sample->references.load(), 2U);
    queue.close();
    EXPECT_EQ(queue.size(), 1U);
  }
  EXPECT_EQ(sample->references.load(), 1U);
  EXPECT_EQ(listeners::queued.load(), 0U);
}

}  // namespace
}  // namespace gpuprof::timing
