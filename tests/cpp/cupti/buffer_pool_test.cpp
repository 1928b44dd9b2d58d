// The buffers that CUPTI has, over several collections.
#include "cupti/buffer_pool.hpp"

#include <gtest/gtest.h>

namespace gpuprof::cupti {
namespace {

TEST(BufferPool, ABufferThatComesBackLateHidesNoneThatIsMissing) {
  BufferPool pool;
  pool.begin();
  std::uint8_t* const early = pool.lend();
  ASSERT_NE(early, nullptr);
  pool.begin();
  EXPECT_FALSE(pool.is_missing_some());
  std::uint8_t* const now = pool.lend();
  EXPECT_NE(pool.take_back(early), nullptr);
  EXPECT_TRUE(pool.is_missing_some());
  EXPECT_NE(pool.take_back(now), nullptr);
  EXPECT_FALSE(pool.is_missing_some());
  EXPECT_EQ(pool.take_back(now), nullptr);
}

TEST(BufferPool, BuffersLeftBehindTakeNoRoomFromALaterCollection) {
  BufferPool pool;
  pool.begin();
  std::uint8_t* const early = pool.lend();
  pool.begin();
  std::uint8_t* last = nullptr;
  for (std::size_t i = 0; i < kMaxBuffers; ++i) ASSERT_NE(last = pool.lend(), nullptr);
  EXPECT_EQ(pool.lend(), nullptr);
  EXPECT_NE(pool.take_back(early), nullptr);
  EXPECT_EQ(pool.lend(), nullptr);
  EXPECT_NE(pool.take_back(last), nullptr);
  EXPECT_NE(pool.lend(), nullptr);
}

}  // namespace
}  // namespace gpuprof::cupti
