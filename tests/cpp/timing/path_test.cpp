#include "timing/path.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "driver/error.hpp"
#include "support/own_process.hpp"

namespace gpuprof::timing {
namespace {

TEST(Path, RootIsEmptyAndAlwaysTheSame) {
  EXPECT_EQ(root_path().text, "");
  EXPECT_EQ(&root_path(), &root_path());
}

TEST(Path, JoinsNamesWithASlash) {
  const Path& step = path_below(root_path(), "join");
  EXPECT_EQ(step.text, "join");
  EXPECT_EQ(path_below(step, "fwd").text, "join/fwd");
}

TEST(Path, OfTheSameNamesIsOneObject) {
  const Path& first = path_below(path_below(root_path(), "one"), "text");
  const Path& second = path_below(path_below(root_path(), "one"), "text");
  EXPECT_EQ(&first, &second);
}

TEST(Path, OfANameWithASlashIsNotThatOfTwoNames) {
  const Path& outer = path_below(root_path(), "slash");
  const Path& nested = path_below(outer, "load");
  const Path& flat = path_below(root_path(), "slash/load");
  EXPECT_NE(&nested, &flat);
  EXPECT_EQ(nested.text, flat.text);
  EXPECT_EQ(lineage(nested), (std::vector<const Path*>{&outer, &nested}));
  EXPECT_EQ(lineage(flat), std::vector<const Path*>{&flat});
  EXPECT_TRUE(lineage(root_path()).empty());
}

TEST(Path, OrderIsThatOfTheFirstUse) {
  const Path& first = path_below(root_path(), "order z");
  const Path& second = path_below(root_path(), "order a");
  EXPECT_LT(first.order, second.order);
  EXPECT_EQ(path_below(root_path(), "order z").order, first.order);
}

TEST(Path, OfOtherSwallowsWhatIsBelow) {
  EXPECT_EQ(&path_below(other_path(), "anything"), &other_path());
}

TEST(Path, LongTextsAreCutAndStayDifferent) {
  const std::string start(kMaxPathBytes, 'x');
  const Path& fits = path_below(root_path(), start);
  const Path& first = path_below(root_path(), start + "1");
  const Path& second = path_below(root_path(), start + "2");
  EXPECT_EQ(fits.text, start);
  EXPECT_LE(first.text.size(), kMaxPathBytes);
  EXPECT_NE(first.text, second.text);
  EXPECT_EQ(&path_below(root_path(), start + "1"), &first);
}

TEST(Path, IsNeverCutInsideACharacter) {
  const std::string snowman = "\xE2\x98\x83";
  for (std::size_t shift = 0; shift < snowman.size(); ++shift) {
    std::string name(shift, 'a');
    while (name.size() <= kMaxPathBytes) name += snowman;
    const std::string text = path_below(root_path(), name).text;
    ASSERT_LE(text.size(), kMaxPathBytes);
    const std::size_t cut = text.rfind("...#");
    ASSERT_NE(cut, std::string::npos);
    EXPECT_EQ((cut - shift) % snowman.size(), 0U) << "shifted by " << shift;
  }
}

TEST(Path, DeepNestingStaysBounded) {
  const Path* path = &root_path();
  for (int depth = 0; depth < 2000; ++depth) path = &path_below(*path, "level");
  EXPECT_LE(path->text.size(), kMaxPathBytes);
}

TEST(Path, PastTheLimitIsOneSharedRowWithOneWarning) {
  tests::in_own_process([] {
    for (std::size_t i = 0; i < kMaxPaths; ++i) {
      ASSERT_NE(&path_below(root_path(), std::to_string(i)), &other_path()) << i;
    }
    EXPECT_FALSE(driver::warnings_pending());
    EXPECT_EQ(&path_below(root_path(), "one more"), &other_path());
    EXPECT_EQ(&path_below(root_path(), "two more"), &other_path());
    EXPECT_EQ(path_below(root_path(), "17").text, "17") << "known paths stay";
    const std::vector<std::string> warnings = driver::take_warnings();
    ASSERT_EQ(warnings.size(), 1U);
    EXPECT_NE(warnings[0].find("10000"), std::string::npos) << warnings[0];
  });
}

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

TEST(PathCache, FollowsTheParent) {
  PathCache cache("leaf");
  const Path& left = path_below(root_path(), "left");
  const Path& right = path_below(root_path(), "right");
  EXPECT_EQ(cache.below(left).text, "left/leaf");
  EXPECT_EQ(cache.below(left).text, "left/leaf");
  EXPECT_EQ(cache.below(right).text, "right/leaf");
  EXPECT_EQ(&cache.below(left), &path_below(left, "leaf"));
  EXPECT_EQ(cache.name(), "leaf");
}

}  // namespace
}  // namespace gpuprof::timing
