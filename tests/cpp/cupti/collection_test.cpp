// Times, names and limits of a collection.
#include "cupti/collection.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cupti/library.hpp"

namespace gpuprof::cupti {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kEpoch = 1'700'000'000 * static_cast<std::uint64_t>(kSecond);

ClockPair pair_of(std::uint64_t cupti, std::int64_t host, bool realtime = true) {
  ClockPair pair;
  pair.cupti = cupti;
  pair.host = host;
  pair.error = 50;
  pair.realtime = realtime;
  return pair;
}

TEST(ClockMaps, OneRateAndOneOffsetAreExact) {
  const ClockMap map(pair_of(kEpoch, 5), pair_of(kEpoch + 10 * kSecond + 60, 5 + 10 * kSecond));
  EXPECT_EQ(map.at(kEpoch), 5);
  EXPECT_EQ(map.at(kEpoch + 7'000'000'001), 7'000'000'006);
  EXPECT_EQ(map.at(kEpoch - 5), 0);
  EXPECT_EQ(map.duration(1234), 1234);
  EXPECT_EQ(map.error(), 50);
}

TEST(ClockMaps, TheWallClockBeingSetIsSpreadAndSaid) {
  const ClockMap map(pair_of(kEpoch, 0), pair_of(kEpoch + 12 * kSecond, 10 * kSecond));
  EXPECT_EQ(map.at(kEpoch + 12 * kSecond), 10 * kSecond);
  EXPECT_EQ(map.at(kEpoch + 6 * kSecond), 5 * kSecond);
  EXPECT_EQ(map.duration(1000), 1000) << "a kernel is as long as the GPU says";
  EXPECT_EQ(map.error(), 2 * kSecond + 50);
}

TEST(ClockMaps, AnotherClockHasARateOfItsOwn) {
  const ClockMap map(pair_of(1000, 0, false), pair_of(1000 + 25 * kSecond, 10 * kSecond, false));
  EXPECT_EQ(map.at(1000 + 5 * kSecond), 2 * kSecond);
  EXPECT_EQ(map.duration(2500), 1000);
  EXPECT_EQ(map.error(), 50);
}

TEST(ClockMaps, TheSamePairTwiceIsAnOffset) {
  for (const bool realtime : {true, false}) {
    const ClockMap map(pair_of(100, 50, realtime), pair_of(100, 50, realtime));
    EXPECT_EQ(map.at(130), 80);
  }
}

TEST(ManyNames, AreBoundedInNumberAndLength) {
  Names names;
  EXPECT_EQ(names.intern("a"), 0U);
  EXPECT_EQ(names.intern("b"), 1U);
  EXPECT_EQ(names.intern("a"), 0U);
  const std::string endless(3 * Names::kMaxBytes, 'x');
  EXPECT_EQ(names.intern(endless), names.intern(endless + "y"));
  EXPECT_EQ(names.all().back().size(), Names::kMaxBytes);
  for (std::size_t i = 0; i < 2 * Names::kMaxNames; ++i) names.intern(std::to_string(i));
  EXPECT_EQ(names.all().size(), Names::kMaxNames + 1);
  EXPECT_EQ(names.all().back(), "(other names)");
  EXPECT_EQ(names.intern("another"), Names::kMaxNames);
  EXPECT_EQ(names.intern("b"), 1U);
}

class Kernel {
 public:
  explicit Kernel(std::uint64_t begin, std::uint64_t end, const char* symbol = "kernel") {
    put(0, kKernelRecord);
    put(16, begin);
    put(24, end);
    put(104, symbol);
  }

  [[nodiscard]] const std::uint8_t* at() const { return bytes_.data(); }
  [[nodiscard]] const std::uint8_t* end(std::size_t bytes = 160) const { return at() + bytes; }

 private:
  template <typename T>
  void put(std::size_t offset, T value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof value);
  }
  std::vector<std::uint8_t> bytes_ = std::vector<std::uint8_t>(160);
};

const LaunchNames& no_launches() {
  static const LaunchNames names([](int, std::uint32_t) -> const char* { return nullptr; });
  return names;
}

TEST(Collections, NothingIsReadBehindTheEnd) {
  Collection collection(10, no_launches(), pair_of(kEpoch, 0));
  const Kernel kernel(kEpoch, kEpoch + 5);
  for (const std::size_t bytes : {0U, 3U, 4U, 159U}) {
    collection.add(kernel.at(), kernel.end(bytes), 0);
  }
  EXPECT_EQ(collection.counts().unknown, 4U);
  EXPECT_EQ(collection.counts().activities, 0U);
  collection.add(kernel.at(), kernel.end(), 0);
  EXPECT_EQ(collection.counts().activities, 1U);
}

TEST(Collections, TimesThatCannotBeAreCountedApart) {
  Collection collection(10, no_launches(), pair_of(kEpoch, 0));
  const std::uint64_t day = 86'400 * static_cast<std::uint64_t>(kSecond);
  for (const Kernel& kernel : {Kernel(0, 0), Kernel(kEpoch, 0), Kernel(kEpoch + 5, kEpoch + 4),
                               Kernel(kEpoch - day, kEpoch), Kernel(1, kEpoch),
                               Kernel(kEpoch, kEpoch + day), Kernel(kEpoch, ~std::uint64_t{0})}) {
    collection.add(kernel.at(), kernel.end(), kSecond);
  }
  EXPECT_EQ(collection.counts().untimed, 7U);
  EXPECT_EQ(collection.counts().activities, 0U);
  EXPECT_TRUE(collection.names().empty());
  // A day later such a time is possible.
  const Kernel late(kEpoch + day, kEpoch + day + 1);
  collection.add(late.at(), late.end(), static_cast<std::int64_t>(day));
  EXPECT_EQ(collection.counts().activities, 1U);
}

}  // namespace
}  // namespace gpuprof::cupti
