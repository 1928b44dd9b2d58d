#include "timing/watchdog.hpp"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

#include "driver/process.hpp"

namespace gpuprof::timing {

struct Watchdog::State {
  explicit State(std::uint32_t* its_word) : word(its_word) {}

  void run() {
    std::unique_lock lock(mutex);
    while (!over) {
      if (!armed) {
        changed.wait(lock);
        continue;
      }
      const HostNanoseconds left = deadline - monotonic_now();
      if (left > 0) {
        changed.wait_for(lock, std::chrono::nanoseconds(left));
        continue;
      }
      __atomic_store_n(word, value, __ATOMIC_RELEASE);
      armed = false;
      fired = true;
    }
  }

  std::uint32_t* word;
  const std::uint32_t generation = driver::fork_generation();
  std::mutex mutex;  // of what follows
  std::condition_variable changed;
  bool armed = false;
  bool fired = false;
  bool over = false;
  std::uint32_t value = 0;
  HostNanoseconds deadline = 0;
  std::thread thread;
};

Watchdog::Watchdog(std::uint32_t* word) : state_(std::make_unique<State>(word)) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    state_->thread = std::thread([state = state_.get()] { state->run(); });
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
#ifdef __linux__
  ::pthread_setname_np(state_->thread.native_handle(), "gpuprof-gate");
#endif
}

Watchdog::~Watchdog() {
  if (state_->generation != driver::fork_generation()) {
    // The thread is the parent's, and so may be the lock.
    [[maybe_unused]] const State* left_alone = state_.release();
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->over = true;
  }
  state_->changed.notify_one();
  state_->thread.join();
}

void Watchdog::arm(std::uint32_t value, HostNanoseconds deadline) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->value = value;
    state_->deadline = deadline;
    state_->armed = true;
    state_->fired = false;
  }
  state_->changed.notify_one();
}

bool Watchdog::disarm() noexcept {
  const std::lock_guard lock(state_->mutex);
  state_->armed = false;
  return state_->fired;
}

}  // namespace gpuprof::timing
