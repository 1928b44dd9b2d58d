// Forks, exit and sticky errors: whether this process may call the driver.
//
// The driver's objects become unusable in three ways that their handles do not tell: the process
// was forked (a child that uses a handle crashes), it is exiting, or a sticky error poisoned the
// driver. Each sets a bit in `blocked`, so that a hot path checks all three with one load. Nothing
// here calls the driver.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace gpuprof::driver {

enum Block : std::uint32_t {
  kForked = 1,   // this process is a child of one that had used the driver
  kExiting = 2,  // exit handlers are running, or the driver returned CUDA_ERROR_DEINITIALIZED
  kSticky = 4,   // an error that every later call would return again
};

// Block bits; zero: the driver may be called. Any thread.
inline std::atomic<std::uint32_t> blocked{0};
inline bool is_blocked() noexcept { return blocked.load(std::memory_order_relaxed) != 0; }

// How many forks there were since the module was loaded. Any thread.
inline std::atomic<std::uint32_t> process_generation{0};
inline std::uint32_t fork_generation() noexcept {
  return process_generation.load(std::memory_order_relaxed);
}

// Call it after cuInit. Later forks set kForked in the child, and exit sets kExiting before the
// driver shuts down (exit handlers run last in, first out). Idempotent, any thread.
void driver_was_initialised() noexcept;

// The one object of a type. Made while the library is loaded, because a forked child may not make
// it. Never destroyed: threads, and callbacks of other libraries, may use it while the process
// exits.
template <typename T>
T& immortal();
template <typename T>
inline const bool made_at_load = (immortal<T>(), true);
template <typename T>
T& immortal() {
  static T& storage = *new T;
  static_cast<void>(&made_at_load<T>);  // has the compiler make it
  return storage;
}

// As a thread_local variable: calls `end` when the thread's locals are destroyed, if it was
// touched.
template <void (*end)() noexcept>
struct AtThreadEnd {
  AtThreadEnd() = default;
  AtThreadEnd(const AtThreadEnd&) = delete;
  AtThreadEnd& operator=(const AtThreadEnd&) = delete;
  ~AtThreadEnd() { end(); }
  void touch() const noexcept {}
};

// A mutex that is never destroyed and is unlocked in a forked child. A fork takes all of them, so
// code that holds one takes no other. Where they are not made while the library is loaded, another
// one is held meanwhile, so that none is made and locked during a fork.
class ForkMutex {
 public:
  ForkMutex() noexcept;
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  [[nodiscard]] ForkMutex* next() const noexcept { return next_; }  // the one made before

 private:
  std::mutex mutex_;
  ForkMutex* next_ = nullptr;
};

// Starts a thread of gpuprof's own: with all signals blocked, because these are for the program's
// threads, and with a name of at most 15 characters. Throws std::system_error.
std::thread start_service_thread(const char* name, std::function<void()> run);

// What such a thread shares with the object that it works for, to derive from. In a forked child
// the thread does not exist, and its lock may be held for good.
struct Service {
  std::mutex mutex;
  std::condition_variable changed;  // by the object, with the mutex held
  bool over = false;                // the thread is to end; guarded by the mutex
  std::thread thread;
  const std::uint32_t generation = fork_generation();
};

// The deleter of one: ends the thread and joins it, and leaves alone what is of a parent process.
struct EndService {
  template <typename Derived>
  void operator()(Derived* service) const noexcept {
    if (service->generation != fork_generation()) return;
    if (service->thread.joinable()) end(*service);
    delete service;
  }

 private:
  static void end(Service& service) noexcept;
};

// Runs `callback` in the child of every fork, before other code. At most 8; they may not allocate.
// True, for a static variable.
bool on_fork_child(void (*callback)() noexcept) noexcept;

}  // namespace gpuprof::driver
