#include "timing/ticker.hpp"

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "driver/process.hpp"

namespace gpuprof::timing {

namespace {

// Where in its slot a call is made.
HostNanoseconds place_in(std::int64_t slot) {
  constexpr double kGoldenRatio = 0.6180339887498949;
  double whole = 0.0;
  const double part = std::modf(static_cast<double>(slot) * kGoldenRatio, &whole);
  return static_cast<HostNanoseconds>(part * Ticker::kSlot);
}

}  // namespace

struct Ticker::State {
  explicit State(std::function<bool()> its_call) : call(std::move(its_call)) {}

  void run() {
    const HostNanoseconds begun = monotonic_now();
    for (std::int64_t slot = 1;; slot = (monotonic_now() - begun) / kSlot + 1) {
      if (!sleep_until(begun + slot * kSlot + place_in(slot)) || !call()) return;
    }
  }

  // False once it is over.
  bool sleep_until(HostNanoseconds moment) {
    std::unique_lock lock(mutex);
    const auto left = std::chrono::nanoseconds(moment - monotonic_now());
    return !changed.wait_for(lock, left, [&] { return over; });
  }

  const std::function<bool()> call;
  const std::uint32_t generation = driver::fork_generation();
  std::mutex mutex;  // of what follows
  std::condition_variable changed;
  bool over = false;
  std::thread thread;
};

Ticker::Ticker(const char* name, std::function<bool()> call)
    : state_(std::make_unique<State>(std::move(call))) {
  state_->thread = driver::start_service_thread(name, [s = state_.get()] { s->run(); });
}

Ticker::~Ticker() {
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

}  // namespace gpuprof::timing
