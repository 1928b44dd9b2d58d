// Buffers of pools: their order, and seals. No driver is needed.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "gpuprof/capture_pool.hpp"

namespace gpuprof::tests {
namespace {

// A buffer that notes when it is dropped.
std::shared_ptr<void> noted(std::vector<int>& dropped, int number) {
  return {nullptr, [&dropped, number](void*) { dropped.push_back(number); }};
}

TEST(CapturePool, BuffersAreCountedFromZeroAndDroppedInTheOrderOfTheirRecords) {
  std::vector<int> dropped;
  std::optional<CapturePool> pool(std::in_place);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(pool->record_buffer(noted(dropped, i)), std::size_t(i));
  EXPECT_EQ(pool->buffer_count(), 5U);
  EXPECT_TRUE(dropped.empty());
  pool.reset();
  EXPECT_EQ(dropped, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(CapturePool, ClearDropsInOrder) {
  std::vector<int> dropped;
  CapturePool pool;
  pool.record_buffer(noted(dropped, 1));
  pool.record_buffer(noted(dropped, 2));
  pool.clear_buffers();
  EXPECT_EQ(dropped, (std::vector<int>{1, 2}));
  EXPECT_EQ(pool.buffer_count(), 0U);
  EXPECT_EQ(pool.record_buffer(noted(dropped, 3)), 0U);
}

TEST(CapturePool, ABufferThatIsDroppedMayUseThePool) {
  CapturePool pool;
  std::size_t count = 99;
  pool.record_buffer(
      std::shared_ptr<void>(nullptr, [&](void*) { count = pool.record_buffer(nullptr); }));
  pool.clear_buffers();
  EXPECT_EQ(count, 0U);
  EXPECT_EQ(pool.buffer_count(), 1U);
}

TEST(CapturePool, ASealRefusesNoBuffers) {
  CapturePool pool;
  pool.seal();
  pool.seal();
  EXPECT_TRUE(pool.is_sealed());
  EXPECT_EQ(pool.record_buffer(nullptr), 0U);
  pool.unseal();
  EXPECT_FALSE(pool.is_sealed());
}

TEST(CapturePool, AnyThreadMayRecord) {
  CapturePool pool;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 100; ++k) pool.record_buffer(std::make_shared<int>(k));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.buffer_count(), 400U);
}

}  // namespace
}  // namespace gpuprof::tests
