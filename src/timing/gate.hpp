// A gate in front of a stream: what is queued behind it waits until it is opened.
//
// Work that is queued behind a closed gate runs without the host's gaps once the gate opens. A
// watchdog opens it after a limit, so that code which waits for the stream hangs no longer than
// that; open() tells. Never closed on a stream that is being captured. One thread at a time; the
// watchdog is a thread that knows no Python. The destructor opens, may wait for what is queued,
// as freeing pinned memory does, and never throws. What it gets wrong: a queue takes about 1,000
// entries, then queueing itself waits for the gate.
#pragma once

#include <cstdint>
#include <memory>

#include "timing/clock.hpp"

namespace gpuprof::timing {

class Gate {
 public:
  // For `stream`; `ordinal` is the device of a default stream on a thread without a context. Throws
  // driver::Error, with CUDA_ERROR_NOT_SUPPORTED where the device cannot wait for a word.
  Gate(std::uintptr_t stream, int ordinal);
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate();

  // Closes it for at most `limit` nanoseconds. Throws driver::Error: kInvalidState if it is closed,
  // or the stream is being captured.
  void close(HostNanoseconds limit);

  // Opens it. Returns whether it was closed until now: false if the watchdog came first.
  bool open() noexcept;

  [[nodiscard]] bool closed() const noexcept;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace gpuprof::timing
