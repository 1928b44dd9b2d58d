#include "timing/path.hpp"

#include <gtest/gtest.h>

namespace gpuprof::timing {
namespace {

NestingEntry entry(const void* owner, const Path& inside) {
  return {owner, nullptr, &inside, nullptr, false};
}

TEST(Nesting, StartsAtTheRoot) {
  const Nesting nesting;
  EXPECT_TRUE(nesting.empty());
  EXPECT_EQ(&nesting.path(), &root_path());
}

TEST(Nesting, IsAtTheInnermostEntry) {
  Nesting nesting;
  const Path& outer = path_below(root_path(), "outer");
  const Path& inner = path_below(outer, "inner");
  const int owners[2] = {};
  nesting.push(entry(&owners[0], outer));
  EXPECT_EQ(&nesting.path(), &outer);
  nesting.push(entry(&owners[1], inner));
  EXPECT_EQ(&nesting.path(), &inner);
  EXPECT_EQ(nesting.size(), 2U);
  nesting.remove(1);
  EXPECT_EQ(&nesting.path(), &outer);
  nesting.remove(0);
  EXPECT_EQ(&nesting.path(), &root_path());
}

TEST(Nesting, AnEntryLeavesFromTheMiddleAndTheOthersStay) {
  Nesting nesting;
  const Path& first = path_below(root_path(), "first");
  const Path& second = path_below(first, "second");
  const Path& third = path_below(second, "third");
  const int owners[3] = {};
  nesting.push(entry(&owners[0], first));
  nesting.push(entry(&owners[1], second));
  nesting.push(entry(&owners[2], third));
  nesting.remove(1);
  ASSERT_EQ(nesting.size(), 2U);
  EXPECT_EQ(nesting.entries()[0].owner, &owners[0]);
  EXPECT_EQ(nesting.entries()[1].owner, &owners[2]);
  EXPECT_EQ(nesting.path().text, "first/second/third");
  nesting.remove(0);
  EXPECT_EQ(nesting.path().text, "first/second/third");
}

}  // namespace
}  // namespace gpuprof::timing
