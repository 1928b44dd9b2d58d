#include "timing/cuda_capture.hpp"

#include "timing/cuda_contexts.hpp"
#include "timing/device.hpp"

namespace gpuprof::timing {

using driver::check;
using driver::Error;
using driver::ErrorKind;
using driver::Table;

namespace {

CaptureOwner owner;

}  // namespace

void set_capture_owner(const CaptureOwner& wanted) noexcept { owner = wanted; }

namespace captures {

State state_of(const Table& table, std::uintptr_t stream) {
  State state;
  const CUstream handle = contexts::as_stream(stream);
  check(table.cuStreamIsCapturing(handle, &state.status), "cuStreamIsCapturing");
  if (state.status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    cuuint64_t id = 0;
    check(table.cuStreamGetCaptureInfo(handle, &state.status, &id, nullptr, nullptr, nullptr),
          "cuStreamGetCaptureInfo");
    state.id = id;
  }
  return state;
}

bool is_capturing(const Table& table, std::uintptr_t stream) {
  State state;
  check(table.cuStreamIsCapturing(contexts::as_stream(stream), &state.status),
        "cuStreamIsCapturing");
  return state.capturing();
}

bool may_record(Sample& sample, const State& state, bool wanted) noexcept {
  // A broken capture does not tell its number; whoever ends it gets the error.
  if (state.status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    if (sample.keeps_pair) return true;  // a Timer's marks are asked for one by one
    const CaptureClaim claim =
        owner.claim != nullptr ? owner.claim(state.id) : CaptureClaim::kForeign;
    if (claim != CaptureClaim::kForeign && owner.entered != nullptr) {
      sample.labels_nodes = true;
      owner.entered(state.id, sample);
    }
    if (claim == CaptureClaim::kRecord) return true;
    if (claim == CaptureClaim::kForeign) {
      if (wanted) return true;
      driver::warn_once(
          driver::Warning::kCaptureSkipped,
          "gpuprof: a timer scope ran inside a stream capture that gpuprof did not open "
          "and was skipped; capture with gpuprof.capture(), or pass in_capture=\"record\" to time "
          "each replay");
    }
  }
  sample.finish(SampleStatus::kSkipped);
  return false;
}

void keep_event(unsigned long long capture, const std::shared_ptr<const OwnEvent>& event) noexcept {
  if (owner.keep != nullptr) owner.keep(capture, event);
}

void hand_over(unsigned long long capture, Sample& sample) noexcept {
  if (owner.recorded != nullptr) owner.recorded(capture, sample);
}

void Leaving::tell() const noexcept {
  if (sample_.keeps_pair) return;
  if (owner.left != nullptr) owner.left(state_.id, sample_, stream_);
}

}  // namespace captures

namespace device {

void leave_capture(const Sample& sample) noexcept {
  if (owner.left != nullptr) owner.left(0, sample, sample.stream);
}

bool read_captured(const Sample& sample, double& ms) {
  if (sample.generation != driver::fork_generation()) driver::throw_if_blocked();
  driver::throw_if_blocked();
  float value = 0.0F;
  const CUresult status = sample.events->access().elapsed(value, static_cast<CUevent>(sample.start),
                                                          static_cast<CUevent>(sample.end));
  if (status == CUDA_ERROR_NOT_READY) return false;
  if (status == CUDA_ERROR_INVALID_HANDLE || status == CUDA_ERROR_CAPTURED_EVENT) {
    throw Error(ErrorKind::kNotReplayed,
                "this span was recorded into a CUDA graph that has not been replayed yet; end the "
                "capture, launch the graph, then read the time");
  }
  check(status, "cuEventElapsedTime");
  ms = static_cast<double>(value);
  return true;
}

}  // namespace device
}  // namespace gpuprof::timing
