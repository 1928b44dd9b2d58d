/// @file
/// Scopes that are timed.
#pragma once

#include <string_view>

#include "gpuprof/clock.hpp"
#include "gpuprof/sample.hpp"
#include "gpuprof/stream.hpp"

namespace gpuprof::timing {
class ThreadNesting;
}

namespace gpuprof {

/// Times the rest of a block.
///
/// @code
/// gpuprof::timer step{"step"};
/// {
///   gpuprof::timer t{"forward", stream};  // its row is "step/forward"
///   forward<<<grid, block, 0, stream>>>(...);
/// }
/// @endcode
///
/// Construction records an event in the stream, destruction another one; neither waits, and after
/// the first time on a thread neither allocates. The GPU time between both is added to the
/// statistics of the scope's path once the GPU has come to it. Scopes nest within a thread; a new
/// thread starts without any. A body that ends with an exception is counted as failed.
///
/// Never throws. A scope may end on another thread than it began on. In a stream capture of
/// somebody else's nothing is recorded; the sample is counted as skipped.
class timer {
 public:
  /// Times on the current context's default stream where this thread uses CUDA, else by the host's
  /// clock.
  [[nodiscard]] explicit timer(std::string_view name) noexcept;
  /// Times on a stream, where this process uses CUDA.
  [[nodiscard]] timer(std::string_view name, Stream stream) noexcept;
  /// Times by a clock. On Clock::kCuda CUDA is initialised, and the stream is the default stream.
  [[nodiscard]] timer(std::string_view name, Clock clock) noexcept;
  timer(const timer&) = delete;
  timer& operator=(const timer&) = delete;
  /// Ends the scope, unless stop() has.
  ~timer() {
    if (sample_ != nullptr) close();
  }

  /// Ends the scope before the end of its block. Only the first call does something.
  /// @return the measurement, as sample() does.
  Sample stop() noexcept;
  /// The measurement, which is open until the scope ends; none where timing was off.
  [[nodiscard]] Sample sample() const noexcept;

 private:
  void open(std::string_view name, Stream stream, bool has_stream, Clock clock) noexcept;
  void close() noexcept;

  timing::Sample* sample_ = nullptr;          // owns one reference while the scope is open
  timing::ThreadNesting* nesting_ = nullptr;  // owns one hold while the scope is open
  Sample stopped_;
  int exceptions_ = 0;  // in flight when it began
};

}  // namespace gpuprof
