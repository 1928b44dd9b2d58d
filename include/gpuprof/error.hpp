/// @file
/// The exception of gpuprof.
///
/// A call that you make throws Error. What only observes (`timer`, `annotate`, destructors) never
/// throws into the code around it: a failure there becomes one warning, see warnings.hpp.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "gpuprof/version.hpp"

GPUPROF_BEGIN_NAMESPACE

/// What kind of failure an Error is.
enum class ErrorKind : std::uint8_t {
  kUnavailable,     ///< no driver, no device, too old
  kCuda,            ///< a driver call returned an error
  kInvalidState,    ///< a call in the wrong order
  kForked,          ///< a driver object met in a forked child
  kGone,            ///< the driver was taken down at exit
  kNotReplayed,     ///< a time inside a graph that has not run yet
  kStreamMismatch,  ///< the work ran on another stream than the one timed
};

/// A failure. Immutable; may be rethrown on any thread.
class __attribute__((visibility("default"))) Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}

  /// For a driver call that returned `code`: CUDA's name of the code, the name of the call, and a
  /// description, which may be empty.
  Error(int code, std::string name, std::string call, std::string detail);

  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
  /// The CUresult, 0 where no driver call failed.
  [[nodiscard]] int code() const noexcept { return code_; }
  /// CUDA's name of the code, such as "CUDA_ERROR_INVALID_HANDLE"; else empty.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// The driver call that failed, such as "cuEventRecord"; else empty.
  [[nodiscard]] const std::string& call() const noexcept { return call_; }
  /// What the driver says of the code, with the lines of its log where it keeps one.
  [[nodiscard]] const std::string& detail() const noexcept { return detail_; }

 private:
  ErrorKind kind_;
  int code_ = 0;
  std::string name_;
  std::string call_;
  std::string detail_;
};

GPUPROF_END_NAMESPACE
