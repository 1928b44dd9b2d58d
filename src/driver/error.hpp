// The exception type of src/, and warnings.
//
// A call that a user asked for throws Error. Where gpuprof only observes (scopes, destructors), a
// failure becomes a warning and the program goes on. bindings/python/errors.cpp turns both into
// Python's exceptions and warnings.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace gpuprof::driver {

enum class ErrorKind : std::uint8_t {
  kUnavailable,     // no driver, no device, too old
  kCuda,            // a driver call answered an error
  kInvalidState,    // a call in the wrong order
  kForked,          // a driver object met in a forked child
  kGone,            // the driver was taken down at exit
  kNotReplayed,     // a time inside a graph that has not run yet
  kStreamMismatch,  // the work ran on another stream than the one timed
};

// Immutable; may be rethrown on any thread.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}

  // For a driver call that returned `code`: CUDA's name of it, and a description with the lines of
  // the driver's log, which may be empty.
  Error(int code, std::string name, std::string call, std::string detail);

  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
  [[nodiscard]] int code() const noexcept { return code_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::string& call() const noexcept { return call_; }
  [[nodiscard]] const std::string& detail() const noexcept { return detail_; }

 private:
  ErrorKind kind_;
  int code_ = 0;
  std::string name_;
  std::string call_;
  std::string detail_;
};

enum class Warning : std::uint8_t {
  kDriverOverride,   // GPUPROF_CUDA_DRIVER was ignored
  kScopeFailed,      // the driver refused a record; timing is off or incomplete
  kCaptureSkipped,   // a scope ran inside a foreign stream capture
  kCaptureImplicit,  // a scope on the legacy stream met a capture (error 906)
  kDropped,          // samples were dropped: too many pending
  kPathsFull,        // too many different paths
  kForeignExit,      // a scope was left on another thread or task than it was entered
  kBackendFailed,    // a SyncBackend's synchronize raised
  kForkedScope,      // a CUDA scope was entered in a forked child
  kTimeline,         // GPU times cannot be placed on the host's clock
  kNvtxNoTool,       // NVTX was asked for and no tool listens
  kNvtxLabel,        // a range has a label that NVTX cannot show
  kForeignRange,     // an annotation was left on another thread or out of order
  kCount,
};

// Keeps `message` for take_warnings(), unless there was a warning of this kind before in this
// process. Any thread.
void warn_once(Warning kind, const std::string& message) noexcept;

// The same for every call.
void warn(const std::string& message) noexcept;

// Whether take_warnings() would return something: one relaxed load.
[[nodiscard]] bool warnings_pending() noexcept;

// The messages that were kept, each returned once. Any thread.
[[nodiscard]] std::vector<std::string> take_warnings();

// Forgets which kinds of warnings there were.
void forget_warnings() noexcept;

}  // namespace gpuprof::driver
