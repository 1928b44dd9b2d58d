#include "timing/watchdog.hpp"

#include <chrono>
#include <mutex>

namespace gpuprof::timing {

struct Watchdog::State : driver::Service {
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
  // Guarded by the mutex:
  bool armed = false;
  bool fired = false;
  std::uint32_t value = 0;
  HostNanoseconds deadline = 0;
};

Watchdog::Watchdog(std::uint32_t* word) : state_(new State(word)) {
  state_->thread = driver::start_service_thread("gpuprof-gate", [s = state_.get()] { s->run(); });
}

Watchdog::~Watchdog() = default;

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
