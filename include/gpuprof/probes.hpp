/// @file
/// Probes: the explicit form of a timer, for engines that switch it by a flag.
#pragma once

#include <optional>
#include <string_view>

#include "gpuprof/clock.hpp"
#include "gpuprof/stream.hpp"
#include "gpuprof/timer.hpp"

GPUPROF_BEGIN_NAMESPACE

/// Starts a timer if `enabled` and timing is on; else none, which finish_probe_timer() takes too.
/// @throws Error if the driver refuses the record.
[[nodiscard]] std::optional<Timer> start_probe_timer_if(bool enabled, Stream stream);
[[nodiscard]] std::optional<Timer> start_probe_timer_if(bool enabled, Clock clock = Clock::kAuto);

/// Stops a probe, waits for it, and returns microseconds; none for none.
/// @throws Error if the driver failed.
std::optional<double> finish_probe_timer(std::optional<Timer> probe);
/// The same with the end on another stream of the same context.
std::optional<double> finish_probe_timer(std::optional<Timer> probe, Stream stream);

/// Stops a probe as finish_probe_timer() does, and writes what it read to the open traces: a slice
/// that ends now. With no trace open that part is one load of an atomic.
/// @param tid the slice's track: a thread's number of the kernel, or any number below 2^28; 0 is
///     the calling thread.
std::optional<double> finish_probe_timer_traced(std::optional<Timer> probe, std::string_view name,
                                                std::string_view category, unsigned tid = 0);

GPUPROF_END_NAMESPACE
