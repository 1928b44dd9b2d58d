// The CPU's counter of retired instructions, through Linux' perf_event_open: user space alone, of
// the thread that opens it and of the threads and processes that it starts from then on.
//
// The kernel counts; between two readings there is no code of ours. Elsewhere than on Linux, and
// where the system does not allow it, opening fails with an error's number. One caller at a time.
#pragma once

#include <cstdint>

namespace gpuprof::timing {

// What a counter counts. The clock is for tests: each machine has one, and few virtual machines
// have a counter of instructions.
enum class CounterEvent { kInstructions, kTaskClock };

struct CounterReading {
  std::uint64_t value = 0;
  // Nanoseconds since it was opened, and those in which the hardware counted: fewer where counters
  // take turns, or on a core that lacks this one.
  std::uint64_t enabled_ns = 0;
  std::uint64_t running_ns = 0;
};

class InstructionCounter {
 public:
  explicit InstructionCounter(CounterEvent event = CounterEvent::kInstructions) noexcept;
  InstructionCounter(const InstructionCounter&) = delete;
  InstructionCounter& operator=(const InstructionCounter&) = delete;
  ~InstructionCounter();

  // 0, or the number of the error that kept it from being opened: ENOSYS, EPERM, ENOENT, ...
  [[nodiscard]] int error() const noexcept { return error_; }

  // Returns 0 and fills in `reading`, or returns the number of an error.
  int read(CounterReading& reading) const noexcept;

  // Idempotent. Reading fails afterwards.
  void close() noexcept;

 private:
  [[maybe_unused]] int file_ = -1;  // of Linux alone
  int error_ = 0;
};

}  // namespace gpuprof::timing
