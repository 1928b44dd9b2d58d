// Traces without Python: labels, what is taken, GPU times, limits.
#include "trace/writer.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "driver/error.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::trace {
namespace {

class Trace : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "trace-XXXXXX";
    descriptor_ = ::mkstemp(name.data());
    ASSERT_GE(descriptor_, 0);
    path_ = name;
    driver::forget_warnings();
  }
  void TearDown() override { ::unlink(path_.c_str()); }

  std::uint32_t start(bool collects = true) {
    OutputOptions options;
    options.descriptor = descriptor_;
    options.where = path_;
    options.sink.collects = collects;
    options.run.process = "test";
    return open(std::move(options));
  }
  [[nodiscard]] std::string text() const {
    std::ifstream file(path_);
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
  }
  [[nodiscard]] std::size_t count(const std::string& what) const {
    const std::string all = text();
    std::size_t found = 0;
    for (std::size_t at = all.find(what); at != std::string::npos; at = all.find(what, at + 1)) {
      ++found;
    }
    return found;
  }

  int descriptor_ = -1;
  std::string path_;
};

Event slice(const char* name, HostNanoseconds begin, HostNanoseconds end) {
  Event event;
  set_name(event, name);
  event.begin = begin;
  event.end = end;
  return event;
}

void note_now(const char* name) {
  const HostNanoseconds now = driver::host_now();
  note(slice(name, now, now));
}

TEST(Label, IsOneForEachText) {
  EXPECT_EQ(intern("one text"), intern("one text"));
  EXPECT_NE(intern("one text"), intern("another"));
}

TEST_F(Trace, TakesWhatEndsWhileItIsOpen) {
  note_now("before");  // as a thread does that has not seen the last trace close
  const std::uint32_t number = start();
  note_now("during");
  close(number);
  note_now("after");
  EXPECT_EQ(count("\"during\""), 1U);
  EXPECT_EQ(count("\"before\"") + count("\"after\""), 0U);
}

TEST_F(Trace, IsNotThereOnceClosed) {
  const std::uint32_t number = start();
  EXPECT_TRUE(flush(number).open);
  close(number);
  EXPECT_FALSE(close(number).open);
  EXPECT_FALSE(flush(number).open);
  EXPECT_FALSE(state(number).open);
}

// GPU spans, placed by a clock of the test's.

std::atomic<int> wanted{0};
std::atomic<int> refreshed{0};
std::atomic<bool> can_place{false};
constexpr double kNoLimit = 1e9;
std::atomic<double> last_anchor_ms{kNoLimit};  // what begins later cannot be placed yet

Event gpu_span(const char* name, double ms, double duration_ns, HostNanoseconds launched) {
  Event event;
  event.kind = Kind::kGpu;
  event.extra = new Extra;
  event.extra->gpu.begin = {nullptr, 1, ms};
  event.extra->gpu.duration_ns = duration_ns;
  event.extra->gpu.launched = launched;
  event.extra->gpu.stream = 7;
  set_name(event, name);
  event.end = driver::host_now();
  return event;
}

void read_out(const char* name, double ms, double duration_ns, std::uint64_t order,
              std::uint16_t depth) {
  Event event = gpu_span(name, ms, duration_ns, base_time());
  event.extra->gpu.order = order;
  event.tid = 1;
  event.depth = depth;
  note(event);
}

class GpuTrace : public Trace {
 protected:
  void SetUp() override {
    Trace::SetUp();
    wanted = 0;
    refreshed = 0;
    can_place = true;
    set_gpu_clock({
        [](bool on) noexcept { wanted += on ? 1 : -1; },
        []() noexcept { ++refreshed; },
        [](const GpuMoment& moment, HostNanoseconds& at, HostNanoseconds& error) noexcept {
          if (moment.anchor == 0) return GpuClock::Answer::kNever;
          if (!can_place || moment.ms > last_anchor_ms) return GpuClock::Answer::kNotYet;
          at = base_time() + static_cast<HostNanoseconds>(moment.ms * 1e6);
          error = 1500;
          return GpuClock::Answer::kPlaced;
        },
    });
  }
};

TEST_F(GpuTrace, PutsASpanOnATrackOfItsStreamNotBeforeItsLaunch) {
  const std::uint32_t number = start();
  EXPECT_EQ(wanted, 1);
  note(gpu_span("early", 5000.0, 2000.0, base_time() + 5'000'100'000));
  note(gpu_span("later", 6000.0, 2000.0, base_time()));
  const State last = close(number);
  EXPECT_EQ(wanted, 0);
  EXPECT_GE(refreshed, 1);
  EXPECT_EQ(last.gpu_error, 1500);
  EXPECT_EQ(count(R"("ts":5000100.000,"dur":1.000,"args":{"gpu_us":2.000})"), 1U) << text();
  EXPECT_EQ(count(R"("ts":6000000.000,"dur":2.000)"), 1U) << text();
  EXPECT_EQ(count(R"("tid":268435456,"ts")"), 2U) << text();
  EXPECT_EQ(count(R"("ph":"s")"), 2U);
  EXPECT_EQ(count(R"("ph":"f","bp":"e")"), 2U);
}

TEST_F(GpuTrace, CutsWhatWouldBeginTooEarlyAtTheFront) {
  const std::uint32_t number = start();
  note(gpu_span("first", 5000.0, 1e6, base_time() + 5'000'001'600));
  note(gpu_span("second", 5001.001, 1e6, base_time()));  // a microsecond after the first
  close(number);
  EXPECT_EQ(count(R"("ts":5000001.600,"dur":998.400,"args":{"gpu_us":1000.000})"), 1U) << text();
  EXPECT_EQ(count("#2"), 0U);
}

TEST_F(GpuTrace, WaitsUntilASpanCanBePlaced) {
  can_place = false;
  const std::uint32_t number = start();
  note(gpu_span("patient", 5000.0, 2000.0, base_time()));
  flush(number);
  EXPECT_EQ(count("patient"), 0U);
  can_place = true;
  flush(number);
  EXPECT_EQ(count("patient"), 1U);
  close(number);
}

TEST_F(GpuTrace, CountsWhatNoClockCanPlace) {
  const std::uint32_t number = start();
  Event lost = gpu_span("lost", 1.0, 1.0, 0);
  lost.extra->gpu.begin.anchor = 0;
  note(lost);
  EXPECT_EQ(close(number).unplaced, 1U);
  EXPECT_EQ(count("\"lost\""), 0U);
}

TEST_F(GpuTrace, GivesSpansThatCrossALaneOfTheirOwn) {
  const std::uint32_t number = start();
  note(gpu_span("one", 5000.0, 1e6, base_time()));
  note(gpu_span("two", 5000.5, 1e6, base_time()));
  close(number);
  EXPECT_EQ(count(R"("tid":268435457,"ts")"), 1U);
  EXPECT_EQ(count("#2"), 1U);
}

TEST_F(GpuTrace, DrawsASpanAsLongAsWhatRanInIt) {
  const std::uint32_t number = start();
  note(gpu_span("inner", 5000.1, 1'000'000.0, base_time()));
  note(gpu_span("outer", 5000.0, 1'099'000.0, base_time()));  // ends a microsecond before
  close(number);
  EXPECT_EQ(count(R"("dur":1100.000,"args":{"gpu_us":1099.000})"), 1U) << text();
  EXPECT_EQ(count("#2"), 0U);
}

TEST_F(GpuTrace, TakesSpansInTheOrderInWhichThreadsReadThemOut) {
  can_place = false;  // until all of them are there
  const std::uint32_t number = start();
  // The queue of this thread is looked at first, though the other one has read out earlier spans.
  read_out("second outer", 5002.0, 1'000'000.0, 4, 0);
  std::thread([&] {
    read_out("first inner", 5000.1, 300'000.0, 1, 1);
    read_out("first outer", 5000.0, 1'000'000.0, 2, 0);
    read_out("second inner", 5002.1, 300'000.0, 3, 1);
  }).join();
  flush(number);
  can_place = true;
  close(number);
  EXPECT_EQ(count("outer\""), 2U);
  EXPECT_EQ(count("inner\""), 2U);
  EXPECT_EQ(count("#2"), 0U) << text();
}

TEST_F(GpuTrace, ASpanThatCannotBePlacedYetHoldsTheNextOnesOfItsTrackBack) {
  const std::uint32_t number = start();
  last_anchor_ms = 5000.2;
  read_out("inner", 5000.1, 100'000.0, 1, 2);
  read_out("inner", 5000.3, 100'000.0, 2, 2);
  read_out("outer", 5000.05, 400'000.0, 3, 1);
  read_out("step", 5000.0, 500'000.0, 4, 0);
  flush(number);
  last_anchor_ms = kNoLimit;
  close(number);
  EXPECT_EQ(count("\"inner\""), 2U);
  EXPECT_EQ(count("#2"), 0U) << text();
}

TEST_F(GpuTrace, CountsWhatCouldNotBePlacedWhenItCloses) {
  can_place = false;
  const std::uint32_t number = start();
  note(gpu_span("too late", 5000.0, 2000.0, base_time()));
  EXPECT_EQ(close(number).unplaced, 1U);
}

// A pipe that nobody reads is a disk that takes nothing.
class SlowDisk : public Trace {
 protected:
  void SetUp() override {
    Trace::SetUp();
    ::close(descriptor_);
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    reading_ = ends[0];
    descriptor_ = ends[1];
  }
  std::size_t read_all() const {
    std::vector<char> piece(1U << 20U);
    std::size_t bytes = 0;
    for (;;) {
      const ssize_t got = ::read(reading_, piece.data(), piece.size());
      if (got <= 0) return bytes;
      bytes += static_cast<std::size_t>(got);
    }
  }
  int reading_ = -1;
};

TEST_F(SlowDisk, BoundsWhatWaitsWithItsArguments) {
  const std::uint32_t number = start();
  const std::string args = "\"text\":\"" + std::string(8192, 'x') + "\"";
  constexpr std::size_t kEvents = 3 * kDefaultBufferBytes / 8192;
  for (std::size_t i = 0; i < kEvents; ++i) {
    Event event = slice("large", driver::host_now(), driver::host_now());
    set_args(event, args);
    note(event);
  }
  const std::uint64_t dropped = state(number).dropped;
  std::size_t bytes = 0;
  std::thread reader([&] { bytes = read_all(); });
  close(number);
  ::close(descriptor_);
  reader.join();
  ::close(reading_);
  EXPECT_GT(dropped, kEvents / 2);
  EXPECT_LT(bytes, kDefaultBufferBytes + (2U << 20U));
  EXPECT_GT(bytes, kDefaultBufferBytes / 2);
}

TEST_F(Trace, TakesNothingOnceItIsComplete) {
  const std::uint32_t number = start();
  const HostNanoseconds before = driver::host_now();
  std::string other = ::testing::TempDir() + "trace-XXXXXX";
  OutputOptions options;  // keeps the writer thread going
  options.descriptor = ::mkstemp(other.data());
  options.where = other;
  const std::uint32_t second = open(std::move(options));
  close(number);
  note(slice("late", before, before));
  flush(second);
  EXPECT_EQ(text().substr(text().size() - 4), "\n]}\n");
  EXPECT_EQ(count("\"late\""), 0U);
  close(second);
  ::unlink(other.c_str());
}

}  // namespace
}  // namespace gpuprof::trace
