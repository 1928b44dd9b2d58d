// A thread that sets a word at a deadline, unless it is disarmed before.
//
// It calls neither the driver nor Python, so other threads cannot block it. It starts with the
// object and the destructor joins it, except in a forked child, where it does not exist. Deadlines
// are on the host's monotonic clock. One caller at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "driver/process.hpp"
#include "timing/clock.hpp"

namespace gpuprof::timing {

class Watchdog {
 public:
  // `word` must outlive this object. Throws std::system_error.
  explicit Watchdog(std::uint32_t* word);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  // Sets the word to `value` at `deadline`.
  void arm(std::uint32_t value, HostNanoseconds deadline);

  // Cancels that. Returns whether it is too late: the word has been set.
  bool disarm() noexcept;

 private:
  struct State;
  std::unique_ptr<State, driver::EndService> state_;
};

}  // namespace gpuprof::timing
