// Entering and leaving a scope, without Python: opens and closes its sample.
//
// `enabled` says whether scopes measure. Backend `auto` is CUDA where cuda_in_use(), else the CPU
// clock. Any thread. Never throws: a scope does not raise into the code it times.
#pragma once

#include <atomic>

#include "timing/sample.hpp"

namespace gpuprof::timing::scope {

inline std::atomic<bool> enabled{true};

// Whether this thread uses CUDA. Initialises nothing. Until CUDA is initialised it looks only once
// a millisecond, otherwise it compares times. A driver that a sticky error has poisoned counts as
// in use: its scopes must fail and not turn into CPU times.
bool cuda_in_use() noexcept;

// Opens a CUDA sample on `sample.stream`; see device::begin().
void open_cuda(Sample& sample, bool in_capture, int ordinal) noexcept;
// Opens a sample of a host clock.
void open_host(Sample& sample, HostNanoseconds now) noexcept;

// Close a sample and deliver it. `watch_cuda`: note on the sample if CUDA came into use meanwhile.
void close_cuda(Sample& sample) noexcept;
void close_host(Sample& sample, HostNanoseconds now, bool watch_cuda) noexcept;

// Makes an open sample final without a measurement, as failed, and delivers it.
void abandon(Sample& sample) noexcept;

}  // namespace gpuprof::timing::scope
