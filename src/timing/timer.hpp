// A pair of marks on a stream, or on the host's clock, that the caller sets and reads.
//
// One event pair for its life, taken at the first start and reused, so that a hot loop costs two
// records. It may move between threads but needs the caller's lock. Misuse and driver failures are
// thrown as driver::Error; the destructor never throws.
#pragma once

#include "timing/sample.hpp"

namespace gpuprof::timing {

class Timer {
 public:
  // `clock` is kCudaClock, or any other id for the host's clock.
  explicit Timer(ClockId clock);
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() = default;

  // Sets the first mark on `stream` and forgets the second. Starting twice moves the mark.
  void start(std::uintptr_t stream, int ordinal);
  // Sets the second mark: on the stream of the first, or on `stream`, which must be one of the same
  // context, else std::invalid_argument.
  void stop();
  void stop(std::uintptr_t stream);

  // Whether elapsed_ms() would return at once with a measurement.
  [[nodiscard]] bool ready();
  // Whether both marks are set.
  [[nodiscard]] bool stopped() const noexcept;

  // The time between the marks, or 0.0 while one of them is missing. Waits at most until `until`;
  // false if it is not known by then.
  bool read(HostNanoseconds until, double& ms);

  // Gives the events back. Afterwards every call but close() throws.
  void close() noexcept { sample_ = SampleRef(); }
  [[nodiscard]] bool closed() const noexcept { return !sample_; }
  [[nodiscard]] ClockId clock() const noexcept { return clock_; }
  [[nodiscard]] const SampleRef& sample() const noexcept { return sample_; }
  // Where the first and the second mark are, on the CUDA clock.
  [[nodiscard]] bool started() const noexcept { return sample_ && started_; }
  [[nodiscard]] std::uintptr_t start_stream() const noexcept { return sample_->stream; }
  [[nodiscard]] std::uintptr_t end_stream() const noexcept { return end_stream_; }

 private:
  Sample& open_sample() const;
  void throw_if_failed() const;

  ClockId clock_;
  bool started_ = false;
  std::uintptr_t end_stream_ = 0;
  SampleRef sample_;
};

}  // namespace gpuprof::timing
