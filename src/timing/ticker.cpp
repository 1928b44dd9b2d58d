#include "timing/ticker.hpp"

#include <chrono>
#include <cstdint>
#include <mutex>
#include <random>
#include <utility>

namespace gpuprof::timing {

namespace {

constexpr HostNanoseconds kLate = 1'000'000;
constexpr int kMostLeftOut = 10;  // late calls in a row

}  // namespace

struct Ticker::State : driver::Service {
  explicit State(std::function<bool()> its_call) : call(std::move(its_call)) {}

  void run() {
    const HostNanoseconds begun = monotonic_now();
    std::minstd_rand random(static_cast<std::uint32_t>(begun));
    std::uniform_int_distribution<HostNanoseconds> place_in_slot(0, kSlot - 1);
    int left_out = 0;
    for (std::int64_t slot = 1;; slot = (monotonic_now() - begun) / kSlot + 1) {
      const HostNanoseconds due = begun + slot * kSlot + place_in_slot(random);
      if (!sleep_until(due)) return;
      if (monotonic_now() - due > kLate && left_out < kMostLeftOut) {
        ++left_out;
        continue;
      }
      left_out = 0;
      if (!call()) return;
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
