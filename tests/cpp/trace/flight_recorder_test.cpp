// Flight recorders without Python: calls, threads, files, limits.
#include "trace/flight_recorder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "driver/error.hpp"
#include "support/comma_locale.hpp"
#include "trace/dump_signal.hpp"
#include "trace/writer.hpp"

namespace gpuprof::trace {
namespace {

class Recorder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "dumps-XXXXXX";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    driver::forget_warnings();
  }
  void TearDown() override {
    if (number_ != 0) close(number_);
    for (int i = 0; i < 100; ++i) ::unlink(path(i).c_str());
    ::rmdir(folder_.c_str());
  }

  std::uint32_t start(std::size_t bytes = 1U << 20U,
                      HostNanoseconds keep = RecorderOptions::kForEver) {
    RecorderOptions options;
    options.keep = keep;
    options.run.process = "test";
    options.keep_bytes = bytes;
    options.name = {folder_ + "/last.", ".json"};
    options.max_dumps = 5;
    number_ = open(std::move(options));
    return number_;
  }
  [[nodiscard]] std::string path(int number) const {
    return folder_ + "/last." + std::to_string(number) + ".json";
  }
  [[nodiscard]] std::size_t count(int number, const std::string& what) const {
    std::ifstream file(path(number));
    std::stringstream all;
    all << file.rdbuf();
    const std::string text = all.str();
    std::size_t found = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
      ++found;
    }
    return found;
  }
  [[nodiscard]] bool exists(int number) const {
    struct stat status{};
    return ::stat(path(number).c_str(), &status) == 0;
  }

  std::string folder_;
  std::uint32_t number_ = 0;
};

void note_one(const char* name) {
  Event event;
  set_name(event, name);
  event.begin = event.end = driver::host_now();
  note(event);
}

TEST_F(Recorder, IsFoundNoMoreOnceItIsClosed) {
  start();
  const std::shared_ptr<FlightRecorder> held = find_recorder(number_);
  close(number_);
  EXPECT_EQ(held->dump("late"), "");
  held->dump_for_limit("late");
  number_ = 0;
  EXPECT_FALSE(exists(1));
}

TEST_F(Recorder, AnswersCallsOfManyThreadsWhileOthersRecord) {
  start(64U << 10U);
  std::atomic<bool> stop{false};
  std::atomic<int> answered{0};
  std::vector<std::thread> threads(2);
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      while (!stop.load()) note_one("busy");
    });
  }
  std::vector<std::thread> callers(5);
  for (std::thread& caller : callers) {
    caller = std::thread([&] {
      if (find_recorder(number_)->dump("asked").empty()) return;
      ++answered;
    });
  }
  for (std::thread& caller : callers) caller.join();
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered.load(), 5);
  for (int i = 1; i <= 5; ++i) {
    EXPECT_EQ(count(i, "\n]}\n"), 1U);
    EXPECT_LT(count(i, "\"busy\""), 1100U);
  }
}

TEST_F(Recorder, WritesNumbersWithoutTheCommaOfALocale) {
  start(1U << 20U, 2'500'000'000);
  note_one("noted");
  const tests::CommaLocale comma;
  EXPECT_EQ(find_recorder(number_)->dump("asked"), path(1));
  EXPECT_EQ(count(1, R"("keepLastSeconds":2.5,)"), 1U);
}

TEST(DumpSignal, IsNoneOfAFault) {
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGKILL, SIGSTOP, 0, -1, 1000}) {
    EXPECT_FALSE(can_watch_signal(number)) << number;
  }
  for (const int number : {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP}) {
    EXPECT_TRUE(can_watch_signal(number)) << number;
  }
}

}  // namespace
}  // namespace gpuprof::trace
