// Where finished samples go.
//
// A sink is a function that is given samples of any final status, in batches, on whichever thread
// found them finished, without any lock of timing/ held. It must not block or throw. The statistics
// are the first sink; parts that timing/ does not know add their own.
#pragma once

#include <cstddef>

#include "timing/sample.hpp"

namespace gpuprof::timing {

using Sink = void (*)(const Sample* const* samples, std::size_t count) noexcept;

// Adds a sink for the rest of the process. At most 4; more are std::length_error. Any thread.
void add_sink(Sink sink);

// Hands finished samples to all sinks.
void deliver(const Sample* const* samples, std::size_t count) noexcept;
inline void deliver(const Sample* sample) noexcept { deliver(&sample, 1); }

}  // namespace gpuprof::timing
