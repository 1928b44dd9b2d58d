#include "timing/capture_owner.hpp"

namespace gpuprof::timing {
namespace {

CaptureOwner owner;

}  // namespace

void set_capture_owner(const CaptureOwner& wanted) noexcept { owner = wanted; }

CaptureClaim claim_capture(unsigned long long capture) noexcept {
  return owner.claim != nullptr ? owner.claim(capture) : CaptureClaim::kForeign;
}

void keep_events(unsigned long long capture,
                 const std::shared_ptr<const GraphEvents>& events) noexcept {
  if (owner.keep != nullptr) owner.keep(capture, events);
}

void hand_over(unsigned long long capture, Sample& sample) noexcept {
  if (owner.recorded != nullptr) owner.recorded(capture, sample);
}

}  // namespace gpuprof::timing
