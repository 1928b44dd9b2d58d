// What this process may still do with the driver.
//
// The driver's objects die in three ways that no handle tells: the process was forked (a child that
// touches a handle crashes), it is exiting (the driver was taken down under us), or a sticky error
// poisoned it. Each sets a bit in `blocked`, so that a hot path asks all three with one load. The
// functions here call no driver and take no lock that is held during a fork.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace gpuprof::driver {

enum Block : std::uint32_t {
  kForked = 1,   // this process is a child of one that had used the driver
  kExiting = 2,  // exit handlers are running, or the driver answered that it is gone
  kSticky = 4,   // an error that every later call would repeat
};

// A set of Block bits; zero means that the driver may be called. Any thread.
inline std::atomic<std::uint32_t> blocked{0};

// How many forks lie between this process and the one that first loaded the module. Any thread.
inline std::atomic<std::uint32_t> process_generation{0};
inline std::uint32_t fork_generation() noexcept {
  return process_generation.load(std::memory_order_relaxed);
}

// Tells that the driver has been initialised in this process: from now on a fork sets kForked in
// the child, and exit sets kExiting before the driver takes itself down (exit handlers run last in,
// first out, so this must follow cuInit). Idempotent, any thread.
void driver_was_initialised() noexcept;

// A mutex with static lifetime that a fork finds unlocked in the child. At most 32 exist; they are
// taken in order of construction around a fork, so code that holds one takes no other.
class ForkMutex {
 public:
  ForkMutex() noexcept;
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

// Runs `callback` in the child of every fork, before anything else of the program runs there.
// At most 8; they may not allocate. Not removable.
void on_fork_child(void (*callback)() noexcept) noexcept;

}  // namespace gpuprof::driver
