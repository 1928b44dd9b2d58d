/// @file
/// Scopes that are timed, and timers that are started and stopped.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "gpuprof/clock.hpp"
#include "gpuprof/sample.hpp"
#include "gpuprof/stream.hpp"

namespace gpuprof::api {
class RangeOfName;
}
namespace gpuprof::timing {
class ThreadNesting;
class Timer;
}  // namespace gpuprof::timing

GPUPROF_BEGIN_NAMESPACE

/// Times the rest of a block, and tells traces the file and line. The arguments are those of
/// `timer`.
///
/// @code
/// GPUPROF_SCOPE("forward", stream);
/// @endcode
#define GPUPROF_SCOPE(...)                                              \
  const ::gpuprof::timer GPUPROF_SCOPE_NAME(gpuprof_scope_, __LINE__) { \
    ::gpuprof::SourceLine{__FILE__, __LINE__}, __VA_ARGS__              \
  }
#define GPUPROF_SCOPE_NAME(text, line) GPUPROF_SCOPE_JOINED(text, line)
#define GPUPROF_SCOPE_JOINED(text, line) text##line

/// A place in the source; the file's name stays where it is.
struct SourceLine {
  const char* file = nullptr;
  std::uint32_t line = 0;
};

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
/// Construction records an event in the stream, destruction another one; neither waits, and once
/// their thread has timed something neither allocates. (The statistics do, for a time that falls
/// into a new bin of their histogram.) The GPU time between both is added to the
/// statistics of the scope's path once the GPU has come to it. Scopes nest within a thread; a new
/// thread starts without any. A body that ends with an exception is counted as failed.
///
/// Never throws. A scope may end on another thread than it began on. In a stream capture of
/// somebody else's nothing is recorded; the sample is counted as skipped. One that begins in an
/// atexit handler or the destructor of a static or thread_local object may measure nothing.
class timer {
 public:
  /// Times on the current context's default stream where this thread uses CUDA, else by the host's
  /// clock.
  [[nodiscard]] explicit timer(std::string_view name) noexcept;
  /// Times on a stream, where this process uses CUDA.
  [[nodiscard]] timer(std::string_view name, Stream stream) noexcept;
  /// Times by a clock. On Clock::kCuda CUDA is initialised, and the stream is the default stream.
  [[nodiscard]] timer(std::string_view name, Clock clock) noexcept;
  /// As one of the others. Traces have the file and line among the arguments of its slice.
  template <typename... StreamOrClock>
  [[nodiscard]] GPUPROF_HIDDEN timer(SourceLine place, std::string_view name,
                                     StreamOrClock... more) noexcept
      : timer(name, more...) {
    place_ = place;
  }
  timer(const timer&) = delete;
  timer& operator=(const timer&) = delete;
  /// Ends the scope, unless stop() has.
  GPUPROF_HIDDEN ~timer() {
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
  void push_range(std::string_view name) noexcept;
  void pop_range() noexcept;

  timing::Sample* sample_ = nullptr;          // owns one reference while the scope is open
  timing::ThreadNesting* nesting_ = nullptr;  // owns one hold while the scope is open
  Sample stopped_;
  std::shared_ptr<const api::RangeOfName> range_;  // pushed to NVTX by thread_
  std::uint32_t thread_ = 0;
  int exceptions_ = 0;  // in flight when it began
  SourceLine place_;
};

/// The time between two calls, in no statistics.
///
/// It keeps one pair of events for its life, so that a hot loop costs two records. It may move
/// between threads; two threads that use it at once need a lock of yours. One that was moved from
/// can only be assigned to and destroyed. Its destructor never throws.
class Timer {
 public:
  /// @throws Error with ErrorKind::kUnavailable for Clock::kCuda without a usable driver and
  /// device.
  explicit Timer(Clock clock = Clock::kAuto);
  explicit Timer(Stream stream);
  Timer(Timer&&) noexcept;
  Timer& operator=(Timer&&) noexcept;
  ~Timer();

  /// Records the start, on the stream of the constructor or another one, and clears the end.
  /// @throws Error if the driver refuses the record.
  void start();
  void start(Stream stream);
  /// Records the end, on the stream of the start or another one of the same context.
  /// @throws Error without a start, and if the driver refuses; std::invalid_argument for a stream
  ///     of another context.
  void stop();
  void stop(Stream stream);

  /// Milliseconds from start to end. Waits for the GPU; 0.0 while one of them is missing.
  /// @throws Error if the driver failed.
  [[nodiscard]] double elapsed_ms();
  /// Whether elapsed_ms() has a measurement and returns without waiting.
  [[nodiscard]] bool ready();
  /// Clock::kCuda or Clock::kCpu, as it was chosen when the timer was made.
  [[nodiscard]] Clock clock() const noexcept;

 private:
  std::unique_ptr<timing::Timer> impl_;
  Stream stream_;
};

GPUPROF_END_NAMESPACE
