// What a process may do with the driver: after a sticky error, in a forked child, at exit.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <new>
#include <string>
#include <thread>

#include "driver/cuda_table.hpp"
#include "driver/process.hpp"
#include "support/allocations.hpp"
#include "support/fake.hpp"
#include "support/own_process.hpp"
#include "timing/cuda_contexts.hpp"

std::atomic<std::uint64_t> gpuprof::tests::allocations{0};

// Counts. All forms that the tests reach, because a sanitizer has its own for those that are not
// here.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  ++gpuprof::tests::allocations;
  return std::malloc(bytes);
}
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (void* memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}

namespace gpuprof::tests {
namespace {

TEST(Fork, AChildThatIsFirstToUseTheDriverMayUseIt) {
  in_own_process([] {
    driver::loaded();
    EXPECT_EQ(forked([] {
                driver::ready();
                return driver::blocked.load() == 0 ? 0 : 1;
              }),
              0);
  });
}

TEST(Fork, ALockHeldByAnotherThreadIsFreeInTheChild) {
  in_own_process([] {
    driver::ForkMutex& mutex = *new driver::ForkMutex;
    std::atomic<bool> held{false};
    std::thread holder([&] {
      const std::lock_guard lock(mutex);
      held = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    });
    while (!held) std::this_thread::yield();
    const int status = forked([&] {
      mutex.lock();
      return 0;
    });
    holder.join();
    EXPECT_EQ(status, 0);
    mutex.lock();
    mutex.unlock();
  });
}

// Waits until a thread of this process waits for something.
void await_sleep(const std::atomic<pid_t>& thread) {
  for (std::string state; state != "S"; std::this_thread::yield()) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread.load()) + "/stat");
    std::string rest;
    if (std::getline(file, rest, ')')) file >> state;
  }
}

TEST(Fork, AThreadMayForkWhileAnotherOneIsAboutTo) {
  in_own_process([] {
    alarm(10);  // threads that wait for each other would do so for ever
    driver::ForkMutex& first = *new driver::ForkMutex;
    driver::ForkMutex& last = *new driver::ForkMutex;
    const auto fork_now = [&](std::atomic<pid_t>& thread) {
      thread = gettid();
      EXPECT_EQ(forked([&] {
                  alarm(5);
                  const std::lock_guard one(first);
                  const std::lock_guard other(last);
                  return 0;
                }),
                0);
    };
    std::atomic<pid_t> ids[2]{};
    std::unique_lock lock(last);
    std::thread one([&] { fork_now(ids[0]); });
    await_sleep(ids[0]);  // it waits for the last lock
    std::thread other([&] { fork_now(ids[1]); });
    await_sleep(ids[1]);
    lock.unlock();
    one.join();
    other.join();
    const std::lock_guard again(last);
  });
}

TEST(Fork, AChildAllocatesNothingBeforeTheProgramGoesOn) {
  in_own_process([] {
    const driver::Table& table = driver::ready();
    for (int number = 0; number < 9; ++number) {  // each makes an entry in a registry
      make_context();
      timing::contexts::find(table, 0, 0);
    }
    // A thread that has used nothing of the library yet, whose variables have no memory so far.
    std::thread([] {
      const std::uint64_t before = allocations;
      EXPECT_EQ(forked([before] { return allocations == before ? 0 : 1; }), 0);
    }).join();
  });
}

TEST(Exit, HandlersOfEarlierDateSeeThatTheDriverIsOff) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        std::atexit([] { _exit((driver::blocked.load() & driver::kExiting) != 0 ? 7 : 1); });
        driver::ready();
        std::exit(0);
      },
      testing::ExitedWithCode(7), "");
}

TEST(Exit, HandlersOfLaterDateMayStillUseTheDriver) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        driver::ready();
        std::atexit([] { _exit(driver::blocked.load() == 0 ? 7 : 1); });
        std::exit(0);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace gpuprof::tests
