#include "timing/watchdog.hpp"

#include <chrono>
#include <condition_variable>
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
  state_->thread = driver::start_service_thread("gpuprof-gate", [s = state_.get()] { s->run(); });
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
