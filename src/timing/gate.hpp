// A gate in front of a stream: work queued behind it waits until it is opened.
//
// Work queued behind a closed gate runs without the host's gaps once the gate opens. A watchdog
// thread opens it after a limit, so that code which waits for the stream does not hang; open()
// tells. Not on a stream that is being captured. One thread at a time. The destructor opens the
// gate, may wait for queued work, as freeing pinned memory does, and never throws. What it gets
// wrong: a stream's queue takes about 1,000 entries, then queueing itself waits for the gate.
#pragma once

#include <cstdint>
#include <memory>

#include "timing/clock.hpp"

namespace gpuprof::timing {

class CudaGateWord;
class EventClock;
class Watchdog;

class Gate {
 public:
  // `ordinal` is the device of a default stream on a thread without a context. Throws
  // driver::Error.
  Gate(std::uintptr_t stream, int ordinal);
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate();

  // Closes it for at most `limit` nanoseconds. Throws driver::Error: kInvalidState if it is closed
  // or the stream is being captured, CUDA_ERROR_NOT_SUPPORTED where the device has no such wait.
  void close(HostNanoseconds limit);

  // Opens it. Returns whether it was closed: false if the watchdog came first.
  bool open() noexcept;

  [[nodiscard]] bool closed() const noexcept { return closed_; }

 private:
  const std::uintptr_t stream_;
  EventClock* clock_ = nullptr;
  std::unique_ptr<CudaGateWord> word_;
  std::unique_ptr<Watchdog> watchdog_;
  std::uint32_t number_ = 0;  // of the last closing
  bool closed_ = false;
};

}  // namespace gpuprof::timing
