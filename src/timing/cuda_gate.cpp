#include <cstdint>
#include <memory>

#include "driver/cuda_thread_state.hpp"
#include "timing/cuda_capture.hpp"
#include "timing/cuda_contexts.hpp"
#include "timing/cuda_gate_word.hpp"
#include "timing/device.hpp"
#include "timing/gate.hpp"
#include "timing/watchdog.hpp"

namespace gpuprof::timing {

using driver::Table;

Gate::Gate(std::uintptr_t stream, int ordinal) : stream_(stream) {
  const Table& table = driver::ready();
  clock_ = contexts::find(table, stream, ordinal).clock;
  const driver::CurrentContext current(table, clock_->context());
  {
    const driver::RelaxedCapture relaxed(table);
    word_ = std::make_unique<CudaGateWord>(table);
  }
  watchdog_ = std::make_unique<Watchdog>(word_->word());
  clock_->hold();
}

// In a forked child the driver is blocked, and the watchdog leaves its thread alone.
Gate::~Gate() {
  open();
  watchdog_.reset();
  try {
    if (clock_->check_alive()) {
      const driver::CurrentContext current(driver::ready(), clock_->context());
      word_.reset();
    }
  } catch (...) {  // the context is gone, and the word with it
  }
  if (word_) word_->abandon();
  clock_->let_go();
}

void Gate::close(HostNanoseconds limit) {
  const Table& table = driver::ready();
  if (closed_) driver::refuse("the gate is closed already; open it");
  if (!clock_->check_alive()) {
    driver::refuse("the gate's context is gone; make a new gate");
  }
  const driver::CurrentContext current(table, clock_->context());
  if (captures::is_capturing(table, stream_)) {
    driver::refuse(
        "the stream is being captured: a gate cannot hold it back; end the capture first");
  }
  const std::uint32_t number = ++number_;
  try {
    word_->hold(contexts::as_stream(stream_), number);
  } catch (...) {
    word_->reach(number);  // the wait may have been queued for all that
    throw;
  }
  closed_ = true;
  watchdog_->arm(number, monotonic_now() + limit);
}

bool Gate::open() noexcept {
  if (!closed_) return false;
  closed_ = false;
  if (device::forked()) return false;
  const bool too_late = watchdog_->disarm();
  if (!too_late) word_->reach(number_);
  return !too_late;
}

}  // namespace gpuprof::timing
