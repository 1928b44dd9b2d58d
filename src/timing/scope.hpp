// Opening and closing a sample: what entering and leaving a scope means, without Python.
//
// The switch says whether scopes measure at all; one atomic load. `auto` is CUDA where this process
// and thread use it already, else the CPU clock; asking initialises nothing. All functions are safe
// from any thread and never throw: a scope does not raise into the code it times.
#pragma once

#include <atomic>

#include "timing/sample.hpp"

namespace gpuprof::timing::scope {

inline std::atomic<bool> enabled{true};

// Whether CUDA is in use on this thread. Until CUDA is first seen, the process is looked at once a
// millisecond (its initialisation takes far longer), otherwise this is a comparison with the time.
// A driver that a sticky error has poisoned counts as in use: its scopes fail, and must not turn
// into CPU times.
bool cuda_in_use() noexcept;

// Opens a CUDA sample on `sample.stream`; see device::begin().
void open_cuda(Sample& sample, bool in_capture, int ordinal) noexcept;
// Opens a sample of a host clock.
void open_host(Sample& sample, HostNanoseconds now) noexcept;

// Closes a sample of either kind and hands it on. `watch_cuda`: note on the sample if CUDA came
// into use meanwhile.
void close_cuda(Sample& sample) noexcept;
void close_host(Sample& sample, HostNanoseconds now, bool watch_cuda) noexcept;

// Makes an open sample final without a measurement (kSkipped, kFailed, ...), and counts it.
void abandon(Sample& sample, SampleStatus status) noexcept;

}  // namespace gpuprof::timing::scope
