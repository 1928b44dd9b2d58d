// The exception type of src/, which is the public one, and warnings.
//
// A call that a user asked for throws Error. Where gpuprof only observes (scopes, destructors), a
// failure becomes a warning and the program goes on. bindings/python/errors.cpp turns both into
// Python's exceptions and warnings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpuprof/error.hpp"

namespace gpuprof::driver {

using gpuprof::Error;  // of the public face, so that no layer has to translate it
using gpuprof::ErrorKind;

[[noreturn]] inline void refuse(const std::string& why) {
  throw Error(ErrorKind::kInvalidState, why);
}

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
