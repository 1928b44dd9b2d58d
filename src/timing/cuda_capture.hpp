// Spans in stream captures: whose a capture is, what a scope does in it, and what it leaves.
//
// A scope that is entered on a capturing stream asks the owner of that capture what to do: the
// interface between scopes and graphs. Captures of others have no owner, and a scope is skipped
// there unless it was told to record. Any thread, also without Python's lock. Nothing here waits.
#pragma once

#include <cstdint>
#include <memory>

#include "driver/cuda_table.hpp"
#include "timing/sample.hpp"

namespace gpuprof::timing {

enum class CaptureClaim : std::uint8_t {
  kForeign,  // not an owned capture: the scope's own option counts
  kRecord,   // record event nodes, and hand the sample over
  kStrip,    // record nothing, without a warning
};

template <typename... Arguments>
void do_nothing(Arguments... /*arguments*/) noexcept {}

// By default no capture is owned.
struct CaptureOwner {
  // Whose the capture with this number of the driver's is.
  CaptureClaim (*claim)(unsigned long long capture) noexcept = [](unsigned long long) noexcept {
    return CaptureClaim::kForeign;
  };
  // An event of nodes of the capture; the owner may keep it alive.
  void (*keep)(unsigned long long capture,
               const std::shared_ptr<const OwnEvent>& event) noexcept = do_nothing;
  // A span whose events are both nodes of the capture. The owner may keep a reference.
  void (*recorded)(unsigned long long capture, Sample& sample) noexcept = do_nothing;
  // A scope that is entered or left on a stream of the capture, whether its events are recorded or
  // not. `capture` is 0 where it is not known.
  void (*note_scope)(unsigned long long capture, const Sample& sample, std::uintptr_t stream,
                     bool is_entered) noexcept = do_nothing;
};
// Set once, before any scope is entered.
inline CaptureOwner capture_owner;

namespace captures {

struct State {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  unsigned long long id = 0;  // of the capture, where it is active

  [[nodiscard]] bool capturing() const noexcept { return status != CU_STREAM_CAPTURE_STATUS_NONE; }
};

// One driver call where the stream is not being captured. Throws driver::Error.
State state_of(const driver::Table& table, std::uintptr_t stream);

// The same without the capture's number: one call.
CUstreamCaptureStatus status_of(const driver::Table& table, std::uintptr_t stream);
inline bool is_capturing(const driver::Table& table, std::uintptr_t stream) {
  return status_of(table, stream) != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Whether a span that begins in this state is recorded as event nodes. If not, the sample is final:
// kSkipped, with one warning unless the capture's owner wants no timers.
bool may_record(Sample& sample, const State& state, bool wanted) noexcept;

}  // namespace captures
}  // namespace gpuprof::timing
