// Pools: buffers in their order, seals, and the order of launches. No driver is needed.
#include "graphs/capture_pool.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "graphs/captured_graph.hpp"
#include "support/driver_errors.hpp"

namespace gpuprof::tests {
namespace {

using graphs::CapturePool;

// A buffer that notes when it is dropped.
CapturePool::Buffer noted(std::vector<int>& dropped, int number) {
  return {std::shared_ptr<void>(nullptr, [&dropped, number](void*) { dropped.push_back(number); }),
          nullptr};
}

TEST(CapturePool, BuffersAreCountedFromZeroAndDroppedInTheOrderOfTheirRecords) {
  std::vector<int> dropped;
  auto pool = std::make_shared<CapturePool>();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(pool->record(noted(dropped, i)), std::size_t(i));
  EXPECT_EQ(pool->buffer_count(), 5U);
  EXPECT_TRUE(dropped.empty());
  pool.reset();
  EXPECT_EQ(dropped, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(CapturePool, ClearDropsInOrderAndIsCounted) {
  std::vector<int> dropped;
  CapturePool pool;
  pool.record(noted(dropped, 1));
  pool.record(noted(dropped, 2));
  EXPECT_EQ(pool.clears(), 0U);
  pool.clear();
  EXPECT_EQ(dropped, (std::vector<int>{1, 2}));
  EXPECT_EQ(pool.buffer_count(), 0U);
  EXPECT_EQ(pool.clears(), 1U);
  EXPECT_EQ(pool.record(noted(dropped, 3)), 0U);
}

TEST(CapturePool, ABufferThatIsDroppedMayUseThePool) {
  CapturePool pool;
  std::size_t count = 99;
  pool.record({std::shared_ptr<void>(nullptr, [&](void*) { count = pool.record({}); }), nullptr});
  pool.clear();
  EXPECT_EQ(count, 0U);
  EXPECT_EQ(pool.buffer_count(), 1U);
}

TEST(CapturePool, ASealRefusesCapturesAndNotBuffers) {
  CapturePool pool;
  pool.throw_if_sealed();
  pool.seal();
  pool.seal();
  EXPECT_TRUE(pool.sealed());
  const driver::Error error = error_from([&] { pool.throw_if_sealed(); });
  EXPECT_EQ(error.kind(), driver::ErrorKind::kInvalidState);
  EXPECT_TRUE(contains(error.what(), "unseal()")) << error.what();
  EXPECT_EQ(pool.record({}), 0U);
  pool.unseal();
  pool.throw_if_sealed();
}

TEST(CapturePool, ThereIsOneOrderOfLaunches) {
  CapturePool pool;
  CapturePool other;
  EXPECT_EQ(pool.launch_order(), pool.launch_order());
  EXPECT_NE(pool.launch_order(), other.launch_order());
}

TEST(CapturePool, AnyThreadMayRecord) {
  CapturePool pool;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 100; ++k) pool.record({std::make_shared<int>(k), nullptr});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.buffer_count(), 400U);
}

}  // namespace
}  // namespace gpuprof::tests
