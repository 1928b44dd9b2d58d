// The time between two calls, on a stream or on the host's clock.
//
// It keeps one event pair, taken at the first start and reused, so that a hot loop costs two
// records. May move between threads; the caller locks. Misuse and driver failures throw
// driver::Error; the destructor never throws.
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

  // Records the start on `stream` and clears the end. Starting twice moves the start.
  void start(std::uintptr_t stream, int ordinal);
  // Records the end on the start's stream, or on another `stream` of the same context (else
  // std::invalid_argument).
  void stop() { stop(open_sample().stream); }
  void stop(std::uintptr_t stream);

  // Whether a measurement can be read without waiting.
  [[nodiscard]] bool ready();
  // Whether start and end are recorded.
  [[nodiscard]] bool stopped() const noexcept {
    return sample_ && sample_->load_status() != SampleStatus::kOpen;
  }

  // Writes the elapsed time, 0.0 while start or end are missing. Waits at most until `until`; false
  // if it is not known by then.
  bool read(HostNanoseconds until, double& ms);

  // Gives the events back. Every later call but close() throws.
  void close() noexcept { sample_ = SampleRef(); }
  [[nodiscard]] bool closed() const noexcept { return !sample_; }
  [[nodiscard]] ClockId clock() const noexcept { return clock_; }
  [[nodiscard]] const SampleRef& sample() const noexcept { return sample_; }
  // The streams of start and end, on the CUDA clock.
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
