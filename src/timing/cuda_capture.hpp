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

struct CaptureOwner {
  // Whose the capture with this number of the driver's is.
  CaptureClaim (*claim)(unsigned long long capture) noexcept = nullptr;
  // An event of nodes of the capture; the owner may keep it alive.
  void (*keep)(unsigned long long capture,
               const std::shared_ptr<const OwnEvent>& event) noexcept = nullptr;
  // A span whose events are both nodes of the capture. The owner may keep a reference.
  void (*recorded)(unsigned long long capture, Sample& sample) noexcept = nullptr;
  // A scope that is entered, and one that is left, on a stream of the capture, whether its events
  // are recorded or not. `capture` is 0 where it is not known.
  void (*entered)(unsigned long long capture, const Sample& sample) noexcept = nullptr;
  void (*left)(unsigned long long capture, const Sample& sample,
               std::uintptr_t stream) noexcept = nullptr;
};

// For the rest of the process. Called once, before any scope is entered.
void set_capture_owner(const CaptureOwner& wanted) noexcept;

namespace captures {

struct State {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  unsigned long long id = 0;  // of the capture, where it is active

  [[nodiscard]] bool capturing() const noexcept { return status != CU_STREAM_CAPTURE_STATUS_NONE; }
};

// One driver call where the stream is not being captured. Throws driver::Error.
State state_of(const driver::Table& table, std::uintptr_t stream);

// The same without the capture's number: one call.
bool is_capturing(const driver::Table& table, std::uintptr_t stream);

// Whether a span that begins in this state is recorded as event nodes. If not, the sample is final:
// kSkipped, with one warning unless the capture's owner wants no timers.
bool may_record(Sample& sample, const State& state, bool wanted) noexcept;

// Tell the owner of the capture of an event and of a complete span; see CaptureOwner.
void keep_event(unsigned long long capture, const std::shared_ptr<const OwnEvent>& event) noexcept;
void hand_over(unsigned long long capture, Sample& sample) noexcept;

// Tells the owner that a scope is left, after its end was recorded or failed to be.
class Leaving {
 public:
  Leaving(const State& state, const Sample& sample, std::uintptr_t stream) noexcept
      : state_(state), sample_(sample), stream_(stream) {}
  Leaving(const Leaving&) = delete;
  Leaving& operator=(const Leaving&) = delete;
  ~Leaving() {
    if (state_.status == CU_STREAM_CAPTURE_STATUS_ACTIVE) tell();
  }

 private:
  void tell() const noexcept;

  const State& state_;
  const Sample& sample_;
  const std::uintptr_t stream_;
};

}  // namespace captures
}  // namespace gpuprof::timing
