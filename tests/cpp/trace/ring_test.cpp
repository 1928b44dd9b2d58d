// The ring of a flight recorder without Python: what it holds, what it drops, what it gives out.
#include "trace/ring.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "trace/sink.hpp"

namespace gpuprof::trace {
namespace {

constexpr std::size_t kBytes = std::size_t{64} << 10U;
constexpr HostNanoseconds kAge = 1000;

// Keeps what it is given as text.
class Names final : public EventSink {
 public:
  Names() : EventSink(1, {}) {}
  void add(const Event& event, std::uint32_t noted_by) override {
    std::string told = event.name->json + "@" + std::to_string(noted_by);
    if (event.extra != nullptr) told += "{" + event.extra->args + "}";
    all.push_back(std::move(told));
  }
  void add_gpu(Event event, std::uint32_t noted_by, HostNanoseconds begin,
               HostNanoseconds error) override {
    add(event, noted_by);
    all.back() += std::to_string(begin) + "+-" + std::to_string(error) + " on " +
                  std::to_string(event.extra->gpu.stream);
  }
  void finish(const Round& /*round*/) noexcept override {}
  void give_up(const char* /*why*/) noexcept override {}
  void describe(State& /*state*/) const noexcept override {}

  std::vector<std::string> all;
};

Event slice(const char* name, HostNanoseconds end) {
  Event event;
  event.name = intern(name);
  event.begin = event.end = end;
  return event;
}

Event counter(const char* name, const char* members, HostNanoseconds end, Extra& extra) {
  Event event = slice(name, end);
  event.kind = Kind::kCounter;
  extra.args = members;
  event.extra = &extra;
  return event;
}

void read(const Ring::Snapshot& snapshot, HostNanoseconds from, EventSink& names) {
  for (const auto& chunk : snapshot) Ring::read(*chunk, from, names, 2);
}

std::vector<std::string> held(Ring& ring, HostNanoseconds from = INT64_MIN) {
  Names names;
  read(ring.snapshot(), from, names);
  return names.all;
}

TEST(Ring, GivesBackWhatAnEventOwns) {
  Ring ring(kBytes, kAge, 0);
  Event own = slice("", 1);
  auto label = std::make_unique<const Label>(Label{"\"its own\"", {}});
  Extra extra;
  own.name = label.get();
  extra.own = std::move(label);
  extra.args = "\"n\":1";
  own.extra = &extra;
  ring.add(own, 7, 1);
  extra.args = "changed";
  own.tid = 9;
  ring.add(own, 7, 1);
  ring.add(slice("plain", 1), 7, 1);
  EXPECT_EQ(held(ring), (std::vector<std::string>{R"("its own"@7{"n":1})",
                                                  R"("its own"@9{changed})", "\"plain\"@7"}));
}

TEST(Ring, GivesBackWhereAGpuSpanWas) {
  Ring ring(kBytes, kAge, 0);
  Event span = slice("span", 10);
  span.kind = Kind::kGpu;
  Extra extra;
  extra.gpu.duration_ns = 100;
  extra.gpu.stream = 3;
  span.extra = &extra;
  span.begin = 40;
  ring.add(span, 7, 12);
  EXPECT_EQ(held(ring, 140), (std::vector<std::string>{"\"span\"@7{}40+-2 on 3"}));
  EXPECT_TRUE(held(ring, 141).empty());  // it was over
}

TEST(Ring, DropsWhatIsTooOld) {
  Ring ring(kBytes, kAge, 0);
  for (HostNanoseconds time = 1; time <= 500; ++time) ring.add(slice("event", time), 1, time);
  ring.trim(kAge);
  EXPECT_EQ(ring.events(), 500U);
  ring.trim(kAge + 501);
  EXPECT_EQ(ring.events(), 0U);
  EXPECT_EQ(ring.bytes(), 0U);
  EXPECT_EQ(ring.since(), 500);
}

TEST(Ring, KeepsASnapshotWhileItGoesOn) {
  Ring ring(kBytes, kAge, 0);
  ring.add(slice("first", 1), 1, 1);
  const Ring::Snapshot snapshot = ring.snapshot();
  for (HostNanoseconds time = 2; time <= 5000; ++time) ring.add(slice("more", time), 1, time);
  Names names;
  read(snapshot, INT64_MIN, names);
  EXPECT_EQ(names.all, std::vector<std::string>{"\"first\"@1"});
  EXPECT_LE(ring.bytes(), kBytes);
}

TEST(Ring, CountsWhatIsTooLarge) {
  Ring ring(kBytes, kAge, 0);
  Extra extra;
  Event event = counter("large", "", 1, extra);
  extra.args.assign(kBytes, 'x');
  ring.add(event, 1, 1);
  EXPECT_EQ(ring.too_large(), 1U);
  EXPECT_EQ(ring.events(), 0U);
  extra.args.assign(kBytes / 4, 'x');  // more than a chunk's part
  ring.add(event, 1, 1);
  EXPECT_EQ(ring.events(), 1U);
  EXPECT_LE(ring.bytes(), kBytes);
}

TEST(Ring, KeepsNothingWithoutBytes) {
  Ring ring(0, kAge, 0);
  ring.add(slice("event", 1), 1, 1);
  EXPECT_TRUE(held(ring).empty());
  EXPECT_EQ(ring.bytes(), 0U);
}

}  // namespace
}  // namespace gpuprof::trace
