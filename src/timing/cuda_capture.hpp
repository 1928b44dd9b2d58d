// Spans in stream captures: what a scope does on a capturing stream, and reading it later.
//
// Any thread. Nothing here waits.
#pragma once

#include "driver/cuda_table.hpp"
#include "timing/sample.hpp"

namespace gpuprof::timing::captures {

struct State {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  unsigned long long id = 0;  // of the capture, where it is active

  [[nodiscard]] bool capturing() const noexcept { return status != CU_STREAM_CAPTURE_STATUS_NONE; }
};

// Whether the stream is being captured. One cheap call where it is not. Throws driver::Error.
State state_of(const driver::Table& table, std::uintptr_t stream);

// Whether a span that begins in this state is recorded as event nodes. If not, the sample is left
// final: kSkipped, with one warning unless the capture's owner wants no timers.
bool may_record(Sample& sample, const State& state, bool wanted) noexcept;

}  // namespace gpuprof::timing::captures
