// Timer scopes in traces: the slice of the host thread at the exit, and the GPU's once it is known.
//
// Joins timing/ and trace/, which do not know each other. Any thread.
#pragma once

#include <cstdint>

#include "timing/sample.hpp"
#include "trace/event.hpp"

namespace gpuprof::ranges {

// Gives finished samples to the open traces and to the limits of flight recorders, and lets traces
// put GPU times on the host's clock. Before the first trace is opened; once is enough. Throws
// std::length_error.
void connect_samples_to_traces();

// Notes the host's span of a closed sample. `depth`: how many slices of this thread are open around
// it. Never throws.
void trace_host_span(const timing::Sample& sample, std::uint16_t depth, const char* file = nullptr,
                     std::uint32_t line = 0) noexcept;

}  // namespace gpuprof::ranges
