#include "gpuprof/trace.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "gpuprof/annotate.hpp"
#include "gpuprof/catalog.hpp"
#include "gpuprof/nvtx.hpp"
#include "gpuprof/probes.hpp"
#include "gpuprof/timer.hpp"
#include "gpuprof/warnings.hpp"
#include "support/fake.hpp"

namespace gpuprof::tests {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class ApiTrace : public OnDevice {
 protected:
  void TearDown() override {
    set_warning_handler({});
    std::remove(path_.c_str());
    OnDevice::TearDown();
  }
  std::string path_ = testing::TempDir() + "gpuprof_api_" + std::to_string(::getpid()) + ".json";
};

TEST_F(ApiTrace, HasScopesOnTheHostAndOnTheirStream) {
  TraceWriter writer(path_);
  {
    const timer step{"step \"1\"", stream_};
    work(stream_, 1'000'000);
  }
  writer.close();
  const std::string text = text_of(path_);
  EXPECT_NE(text.find(R"("name":"step \"1\"","cat":"scope")"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("cat":"gpu")"), std::string::npos) << text;
  EXPECT_TRUE(writer.state().error.empty());
  EXPECT_EQ(text_of(path_ + ".part"), "");
}

TEST_F(ApiTrace, HasTheFileAndLineOfAScope) {
  TraceWriter writer(path_);
  {
    GPUPROF_SCOPE("by the clock", Clock::kCpu);
    GPUPROF_SCOPE("on a stream", stream_);
    GPUPROF_SCOPE("plain");
  }
  const int line = __LINE__ - 2;
  writer.close();
  const std::string text = text_of(path_);
  EXPECT_NE(text.find("trace_test.cpp\",\"line\":" + std::to_string(line) + "}"), std::string::npos)
      << text;
  EXPECT_NE(text.find(R"("name":"by the clock","cat":"scope")"), std::string::npos);
  EXPECT_NE(text.find(R"("name":"on a stream","cat":"scope")"), std::string::npos);
}

TEST_F(ApiTrace, AnnotationsOfOneTextThatChangesAreTold) {
  TraceWriter writer(path_);
  std::string name = "aaaa";
  for (const char* text : {"bbbb", "cccc"}) {
    const annotate plain{name};
    const annotate in_domain{name, {Color{"red"}, "kind", {}, "domain"}};
    const annotate of_kind{name, {{}, "other"}};
    name.replace(0, name.size(), text);  // in the same memory
  }
  writer.close();
  const std::string text = text_of(path_);
  for (const char* part : {R"("aaaa","cat":"annotation")", R"("aaaa","cat":"kind")",
                           R"("bbbb","cat":"other")", R"("bbbb","cat":"annotation")"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << text;
  }
}

TEST_F(ApiTrace, HasTheEventsThatItIsGiven) {
  TraceOptions options;
  options.collect = false;
  options.args.add("model", "small").add("layers", 12).add("loss", std::nan("")).add("half", 0.5);
  TraceWriter writer(path_, options);
  TraceArgs args;
  args.add("ok", true);
  const std::int64_t now = TraceWriter::now_ns();
  writer.complete("load", now - 1000, now, "io", 0, args);
  writer.push("copy", "io", 0.5);
  writer.instant("start");
  writer.counter("queue", 3.0);
  writer.counter("queue", std::numeric_limits<double>::infinity());
  writer.flow_start(7);
  writer.flow_end(7);
  EXPECT_THROW(writer.flow_start(std::uint64_t{1} << 40U), std::invalid_argument);
  {
    const timer other{"other", stream_};
  }
  writer.flush();
  EXPECT_EQ(writer.state().events, 6U);
  writer.close();
  writer.instant("late");
  const std::string text = text_of(path_);
  for (const char* name :
       {R"("name":"load")", R"("name":"copy")", R"("name":"start")", R"("name":"queue")",
        R"("ok":true)", R"("loss":"nan")", R"("half":0.5)", R"("layers":12)"}) {
    EXPECT_NE(text.find(name), std::string::npos) << name << text;
  }
  EXPECT_EQ(text.find("other"), std::string::npos);
  EXPECT_EQ(text.find("late"), std::string::npos);
}

TEST_F(ApiTrace, RefusesTimesThatAreNone) {
  TraceWriter writer(path_);
  for (const double ms : {-1.0, std::nan(""), std::numeric_limits<double>::infinity(), 1e300}) {
    EXPECT_THROW(writer.push("slice", "io", ms), std::invalid_argument) << ms;
  }
  const std::int64_t now = TraceWriter::now_ns();
  EXPECT_THROW(writer.complete("slice", now, now - 1), std::invalid_argument);
  writer.close();
  EXPECT_EQ(writer.state().dropped, 0U);
  EXPECT_EQ(text_of(path_).find("slice"), std::string::npos);
}

TEST_F(ApiTrace, TakesNumbersOfAnyIntegerType) {
  TraceOptions options;
  options.args.add("size", std::string("four").size()).add("unsigned", 7U).add("long", -8LL);
  options.args.add("large", std::numeric_limits<std::uint64_t>::max());
  TraceWriter writer(path_, options);
  writer.close();
  EXPECT_NE(text_of(path_).find(R"("size":4,"unsigned":7,"long":-8,"large":18446744073709551615)"),
            std::string::npos);
}

TEST_F(ApiTrace, TwoOfOnePathAreTwoFiles) {
  TraceWriter first(path_);
  TraceWriter second(path_);
  EXPECT_EQ(first.path(), path_);
  EXPECT_NE(second.path(), path_);
  second.close();
  EXPECT_NE(text_of(second.path()).find("traceEvents"), std::string::npos);
  std::remove(second.path().c_str());
}

TEST_F(ApiTrace, RefusesAPathThatItCannotWrite) {
  EXPECT_THROW(TraceWriter(""), std::invalid_argument);
  EXPECT_THROW(TraceWriter("run.json.gz"), std::invalid_argument);
  EXPECT_THROW(TraceWriter("/no/such/folder/run.json"), std::system_error);
}

TEST_F(ApiTrace, RefusesToReplaceWhatIsNoFile) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THROW(TraceWriter{path_}, std::system_error);
  struct stat there{};
  ASSERT_EQ(::stat(path_.c_str(), &there), 0);
  EXPECT_TRUE(S_ISFIFO(there.st_mode));
  EXPECT_NE(::access((path_ + ".part").c_str(), F_OK), 0);
}

TEST_F(ApiTrace, HasAnnotationsProbesAndRangesAcrossThreads) {
  const RangeCatalog engine{"engine", {{"engine.decode", "one step of decoding"}}};
  TraceWriter writer(path_);
  {
    const annotate by_catalog{engine["decode"]};
    const annotate by_name{"batch", {Color{"green"}, "data", 42}};
    mark("here");
  }
  const std::uint64_t number = range_start("request");
  std::thread([&] { EXPECT_TRUE(range_end(number)); }).join();
  EXPECT_FALSE(range_end(number));
  EXPECT_FALSE(range_end(0));
  EXPECT_TRUE(finish_probe_timer_traced(start_probe_timer_if(true, Stream(stream_)), "probe", "p"));
  writer.close();
  const std::string text = text_of(path_);
  for (const char* part :
       {R"("name":"engine.decode","cat":"engine")", R"("name":"batch","cat":"data")",
        R"("payload":42)", R"("name":"here","cat":"annotation")", R"("name":"request")",
        R"("name":"probe","cat":"p")"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << text;
  }
}

TEST_F(ApiTrace, ANameThatIsNoLabelShowsNothingWithOneWarning) {
  int warned = 0;
  set_warning_handler([&](const std::string&) { ++warned; });
  TraceWriter writer(path_);
  {
    const annotate empty{""};
  }
  {
    const annotate with_nul{std::string_view("a\0b", 3)};
  }
  EXPECT_EQ(range_start(""), 0U);
  EXPECT_EQ(warned, 1);
}

TEST(ApiCatalog, ChecksItsRangesWhenItIsMade) {
  using Specs = std::initializer_list<RangeSpec>;
  const auto refused = [](const char* name_space, Specs specs) {
    EXPECT_THROW(RangeCatalog(name_space, specs), std::invalid_argument);
  };
  refused("", {{"a.b", "text"}});
  refused("a", {});
  refused("a", {{"b.c", "text"}});
  refused("a", {{"a.", "text"}});
  refused("a", {{"a.b", ""}});
  refused("a", {{"a.b", "text"}, {"a.b", "again"}});
  const RangeCatalog good{"a", {{"a.b", "text"}}};
  EXPECT_EQ(&good["b"], &good["a.b"]);
  EXPECT_EQ(good["b"].spec().description, "text");
  EXPECT_THROW(static_cast<void>(good["c"]), std::out_of_range);
}

TEST(ApiNvtx, IsOffUntilItIsSwitchedOnAndSaysThatNoToolListens) {
  driver::forget_warnings();
  std::string warned;
  set_warning_handler([&](const std::string& message) { warned = message; });
  EXPECT_FALSE(nvtx::is_enabled());
  nvtx::enable();
  {
    const annotate range{"work", {Color{0xFF0000}}};
  }
  EXPECT_TRUE(nvtx::is_enabled());
  nvtx::disable();
  set_warning_handler({});
  EXPECT_NE(warned.find("no tool listens"), std::string::npos);
  EXPECT_THROW(Color{"rot"}, std::invalid_argument);
  EXPECT_EQ(Color{"#102030"}.argb(), 0xFF102030U);
}

// Under ThreadSanitizer above all.
TEST_F(ApiTrace, AnyThreadMayUseItWhileOthersCloseIt) {
  for (int round = 0; round < 5; ++round) {
    TraceWriter writer(path_);
    std::atomic<std::uint64_t> pushed{0};
    std::atomic<bool> closed{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        while (!closed.load()) {
          writer.push("mine", "test", 0.001);
          ++pushed;
          timing::pause_briefly();
        }
      });
      threads.emplace_back([&] {
        while (!closed.load()) {
          writer.flush();
          EXPECT_EQ(writer.state().error, "");
          timing::pause_briefly();
        }
      });
      threads.emplace_back([&] {
        while (pushed.load() < 100) timing::pause_briefly();
        writer.close();
        EXPECT_FALSE(writer.state().open);
        EXPECT_GE(writer.state().events, 100U);
        EXPECT_NE(text_of(path_), "");
        closed = true;
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace gpuprof::tests
