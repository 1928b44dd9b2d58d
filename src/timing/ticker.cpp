#include "timing/ticker.hpp"

#include <chrono>
#include <cmath>
#include <mutex>
#include <utility>

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

struct Ticker::State : driver::Service {
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
};

Ticker::Ticker(const char* name, std::function<bool()> call) : state_(new State(std::move(call))) {
  state_->thread = driver::start_service_thread(name, [s = state_.get()] { s->run(); });
}

Ticker::~Ticker() = default;

}  // namespace gpuprof::timing
