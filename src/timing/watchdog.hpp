// A thread that sets a word at a deadline, unless it is told in time not to.
//
// It calls no driver and no Python, so it runs whatever the other threads are stuck in. It starts
// with the object and is joined by the destructor; in a forked child, where it does not exist, it
// is left alone. Deadlines are on the host's monotonic clock. One owner at a time; signals are for
// the program's own threads.
#pragma once

#include <cstdint>
#include <memory>

#include "timing/clock.hpp"

namespace gpuprof::timing {

class Watchdog {
 public:
  // `word` must outlive this object. Throws std::system_error where no thread can be had.
  explicit Watchdog(std::uint32_t* word);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  // Sets the word to `value` at `deadline`.
  void arm(std::uint32_t value, HostNanoseconds deadline);

  // Calls that off. Returns whether it is too late: the word has been set.
  bool disarm() noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gpuprof::timing
