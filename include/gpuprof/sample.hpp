/// @file
/// One measurement of a scope.
#pragma once

#include <string>
#include <utility>

#include "gpuprof/version.hpp"

namespace gpuprof::timing {
struct Sample;
}

GPUPROF_BEGIN_NAMESPACE

/// One entry of a scope: its time, once it is known.
///
/// A handle; copies name the same measurement, and it may outlive its scope. Any thread.
class Sample {
 public:
  /// No measurement; what a scope gives while timing is off.
  Sample() noexcept = default;
  Sample(const Sample& other) noexcept;
  Sample(Sample&& other) noexcept : impl_(other.impl_) { other.impl_ = nullptr; }
  Sample& operator=(Sample other) noexcept {
    std::swap(impl_, other.impl_);
    return *this;
  }
  ~Sample();

  /// Whether there is a measurement, finished or not.
  explicit operator bool() const noexcept { return impl_ != nullptr; }

  /// Milliseconds on the sample's clock. Waits for the GPU to come to the scope's end.
  ///
  /// @return NaN without a measurement.
  /// @throws Error where the scope is still open, nothing was recorded (`dropped`, skipped in a
  ///     stream capture), a graph has not been replayed yet, or the driver failed.
  [[nodiscard]] double ms() const;
  /// Whether ms() returns without waiting. Never throws: of a failed sample it is true.
  [[nodiscard]] bool ready() const noexcept;
  /// Milliseconds on the host's clock from the scope's begin to its end, on the host. NaN while it
  /// is open and without a measurement.
  [[nodiscard]] double host_ms() const noexcept;
  /// The names of the open scopes and its own: "step/fwd".
  [[nodiscard]] std::string path() const;
  /// "cuda" or "cpu"; empty without a measurement.
  [[nodiscard]] std::string clock() const;
  /// Whether the body ended with an exception or the driver refused the measurement. Such samples
  /// are counted as failed and are in no other statistics.
  [[nodiscard]] bool failed() const noexcept;
  /// Whether nothing was recorded, because too many samples waited for the GPU.
  [[nodiscard]] bool dropped() const noexcept;

 private:
  friend class timer;
  explicit Sample(timing::Sample* owned) noexcept : impl_(owned) {}
  timing::Sample* impl_ = nullptr;  // owns one reference
};

GPUPROF_END_NAMESPACE
