// Whose a stream capture is: the seam between scopes and graphs.
//
// A scope that is entered on a capturing stream asks the owner of that capture what to do. Captures
// of others have none: a scope is skipped there unless it was told to record. Any thread; the
// functions may be called without Python's lock, and on any thread that records into the capture.
#pragma once

#include <cstdint>
#include <memory>

#include "timing/sample.hpp"

namespace gpuprof::timing {

enum class CaptureClaim : std::uint8_t {
  kForeign,  // somebody else's: the scope's own choice counts
  kRecord,   // record event nodes, and hand the sample over
  kStrip,    // record nothing, and say nothing
};

struct CaptureOwner {
  // Whose the capture with this number of the driver's is.
  CaptureClaim (*claim)(unsigned long long capture) noexcept = nullptr;
  // Events that are about to become nodes of the capture; the owner may keep them alive.
  void (*keep)(unsigned long long capture,
               const std::shared_ptr<const GraphEvents>& events) noexcept = nullptr;
  // A span both ends of which are nodes of the capture now. The owner may keep a reference to the
  // sample.
  void (*recorded)(unsigned long long capture, Sample& sample) noexcept = nullptr;
};

// For the rest of the process. Called once, before any scope is entered.
void set_capture_owner(const CaptureOwner& wanted) noexcept;

// kForeign where nobody has set an owner.
CaptureClaim claim_capture(unsigned long long capture) noexcept;
void keep_events(unsigned long long capture,
                 const std::shared_ptr<const GraphEvents>& events) noexcept;
void hand_over(unsigned long long capture, Sample& sample) noexcept;

}  // namespace gpuprof::timing
