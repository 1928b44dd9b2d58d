// Scopes and captures in what runs last: destructors of thread_local and static objects, atexit
// handlers. Each in a process of its own, which must come to its end.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "gpuprof/stats.hpp"
#include "gpuprof/timer.hpp"
#include "graphs/capture.hpp"
#include "support/fake.hpp"
#include "support/own_process.hpp"

namespace gpuprof::tests {
namespace {

constexpr unsigned kSeconds = 20;

void nested_scopes() {
  for (int i = 0; i < 100; ++i) {
    const timer outer{"outer", Clock::kCpu};
    const timer inner{"inner", Clock::kCpu};
  }
}

struct TimedEnd {
  ~TimedEnd() { nested_scopes(); }
  void touch() const noexcept {}
};
thread_local const TimedEnd timed_end;

TEST(Ends, AThreadsLocalsMayBeTimedWhenItsOtherLocalsAreGone) {
  in_own_process([] {
    alarm(kSeconds);
    for (int i = 0; i < 10; ++i) {
      std::thread([] {
        timed_end.touch();  // made before the thread's first scope, so destroyed later
        nested_scopes();
      }).join();
    }
    EXPECT_GE(stats().at("outer/inner").host.count, 1000U);
  });
}

TEST(Ends, AtexitHandlersAndStaticObjectsMayBeTimed) {
  in_own_process([] {
    alarm(kSeconds);
    nested_scopes();
    static const TimedEnd in_static;
    std::atexit(&nested_scopes);
  });
}

TEST(Ends, AScopeThatIsStillOpenMayEndInAStaticObject) {
  in_own_process([] {
    alarm(kSeconds);
    static const timer whole{"whole", Clock::kCpu};
    nested_scopes();
  });
}

TEST(Ends, SamplesOfEndedThreadsAreUsedAgain) {
  in_own_process([] {
    alarm(kSeconds);
    const auto thread = [] {
      std::thread([] {
        timed_end.touch();
        nested_scopes();
      }).join();
    };
    thread();
    const std::uint64_t before = timing::samples_in_memory();
    for (int i = 0; i < 20; ++i) thread();
    EXPECT_EQ(timing::samples_in_memory(), before);
  });
}

// Begins a capture when the thread's list of captures is destroyed.
struct CapturingEnd {
  CUstream stream = nullptr;
  ~CapturingEnd() {
    for (int i = 0; stream != nullptr && i < 10; ++i) {
      const auto capture = graphs::Capture::begin(number(stream), 0, {});
      capture->abort();
    }
  }
};
thread_local CapturingEnd capturing_end;

TEST(Ends, AThreadsLocalsMayCapture) {
  in_own_process([] {
    alarm(kSeconds);
    const driver::Table& table = driver::ready();
    const CUcontext context = use_primary();
    const CUstream stream = make_current_stream();
    std::thread([&] {
      driver::check(table.cuCtxPushCurrent(context), "cuCtxPushCurrent");
      capturing_end.stream = stream;
      graphs::Capture::begin(number(stream), 0, {})->abort();
    }).join();
    EXPECT_TRUE(graphs::open_captures().empty());
  });
}

}  // namespace
}  // namespace gpuprof::tests
