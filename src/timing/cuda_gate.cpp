#include <atomic>
#include <cstdint>
#include <memory>

#include "driver/cuda_thread_state.hpp"
#include "driver/process.hpp"
#include "timing/cuda_capture.hpp"
#include "timing/cuda_contexts.hpp"
#include "timing/cuda_gate_word.hpp"
#include "timing/gate.hpp"
#include "timing/watchdog.hpp"

namespace gpuprof::timing {

using driver::Error;
using driver::ErrorKind;
using driver::Table;

struct Gate::Parts {
  explicit Parts(const contexts::Found& found, std::uintptr_t its_stream)
      : clock(*found.clock), stream(its_stream) {}

  EventClock& clock;
  std::uintptr_t stream;
  std::uint32_t generation = driver::fork_generation();
  std::unique_ptr<CudaGateWord> word;
  std::unique_ptr<Watchdog> watchdog;
  std::uint32_t number = 0;  // of the last closing
  bool closed = false;
};

Gate::Gate(std::uintptr_t stream, int ordinal) {
  const Table& table = driver::ready();
  const contexts::Found found = contexts::find(table, stream, ordinal);
  parts_ = std::make_unique<Parts>(found, stream);
  const driver::CurrentContext current(table, parts_->clock.context());
  {
    const driver::RelaxedCapture relaxed(table);
    parts_->word = std::make_unique<CudaGateWord>(table);
  }
  parts_->watchdog = std::make_unique<Watchdog>(parts_->word->word());
  parts_->clock.hold();
}

Gate::~Gate() {
  open();
  if (parts_->generation != driver::fork_generation()) {
    parts_->word->abandon();
    return;
  }
  parts_->watchdog.reset();
  if (driver::is_blocked() || !parts_->clock.check_alive()) {
    parts_->word->abandon();
  } else {
    try {
      const driver::CurrentContext current(driver::ready(), parts_->clock.context());
      parts_->word.reset();
    } catch (...) {
      parts_->word->abandon();
    }
  }
  parts_->clock.let_go();
}

void Gate::close(HostNanoseconds limit) {
  const Table& table = driver::ready();
  Parts& parts = *parts_;
  if (parts.closed) driver::refuse("the gate is closed already; open it");
  if (!parts.clock.check_alive()) {
    driver::refuse("the gate's context is gone; make a new gate");
  }
  const driver::CurrentContext current(table, parts.clock.context());
  if (captures::is_capturing(table, parts.stream)) {
    driver::refuse(
        "the stream is being captured: a gate cannot hold it back; end the capture first");
  }
  const std::uint32_t number = ++parts.number;
  try {
    parts.word->hold(contexts::as_stream(parts.stream), number);
  } catch (...) {
    parts.word->reach(number);  // the wait may have been queued for all that
    throw;
  }
  parts.closed = true;
  parts.watchdog->arm(number, monotonic_now() + limit);
}

bool Gate::open() noexcept {
  Parts& parts = *parts_;
  if (!parts.closed) return false;
  parts.closed = false;
  if (parts.generation != driver::fork_generation()) return false;
  const bool too_late = parts.watchdog->disarm();
  if (!too_late) parts.word->reach(parts.number);
  return !too_late;
}

bool Gate::closed() const noexcept { return parts_->closed; }

}  // namespace gpuprof::timing
