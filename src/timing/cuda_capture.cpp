#include "timing/cuda_capture.hpp"

#include "timing/cuda_contexts.hpp"
#include "timing/device.hpp"

namespace gpuprof::timing {

using driver::check;
using driver::Error;
using driver::ErrorKind;
using driver::Table;

namespace captures {

CUstreamCaptureStatus status_of(const Table& table, std::uintptr_t stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  check(table.cuStreamIsCapturing(contexts::as_stream(stream), &status), "cuStreamIsCapturing");
  return status;
}

State state_of(const Table& table, std::uintptr_t stream) {
  State state{status_of(table, stream)};
  if (state.status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    cuuint64_t id = 0;
    check(table.cuStreamGetCaptureInfo(contexts::as_stream(stream), &state.status, &id, nullptr,
                                       nullptr, nullptr),
          "cuStreamGetCaptureInfo");
    state.id = id;
  }
  return state;
}

bool may_record(Sample& sample, const State& state, bool wanted) noexcept {
  // A broken capture does not tell its number; whoever ends it gets the error.
  if (state.status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    if (sample.keeps_pair) return true;  // a Timer's marks are asked for one by one
    const CaptureClaim claim = capture_owner.claim(state.id);
    if (claim != CaptureClaim::kForeign) {
      sample.labels_nodes = true;
      capture_owner.note_scope(state.id, sample, sample.stream, /*is_entered=*/true);
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

}  // namespace captures

namespace device {

void leave_capture(const Sample& sample) noexcept {
  capture_owner.note_scope(0, sample, sample.stream, /*is_entered=*/false);
}

bool read_captured(const Sample& sample, double& ms) {
  driver::throw_if_blocked();
  float value = 0.0F;
  const CUresult status = sample.events->access().elapsed(value, sample.start, sample.end);
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
