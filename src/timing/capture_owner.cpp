#include "timing/capture_owner.hpp"

namespace gpuprof::timing {
namespace {

CaptureOwner owner;

}  // namespace

void set_capture_owner(const CaptureOwner& wanted) noexcept { owner = wanted; }

CaptureClaim claim_capture(unsigned long long capture) noexcept {
  return owner.claim != nullptr ? owner.claim(capture) : CaptureClaim::kForeign;
}

void hand_over(unsigned long long capture, Sample& sample) noexcept {
  if (owner.recorded != nullptr) owner.recorded(capture, sample);
}

}  // namespace gpuprof::timing
