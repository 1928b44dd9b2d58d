#include "timing/path.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

namespace gpuprof::timing {
namespace {

TEST(Path, IsOneObjectForAllThreads) {
  std::vector<const Path*> found(16);
  std::vector<std::thread> threads;
  threads.reserve(found.size());
  for (const Path*& slot : found) {
    threads.emplace_back([&slot] {
      for (int i = 0; i < 100; ++i) slot = &path_below(root_path(), "shared " + std::to_string(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(std::all_of(found.begin(), found.end(),
                          [&](const Path* path) { return path == found.front(); }));
}

}  // namespace
}  // namespace gpuprof::timing
