// The open traces of this process and the thread that writes them.
//
// The thread runs while a trace is open. It takes queued events, places GPU times, and writes a few
// times a second, so that a killed process loses less than a second. Any thread may call. open(),
// close() and flush() wait for the thread and must not be called under a lock. A failure to write
// becomes one warning and ends that trace. A forked child has no open traces.
#pragma once

#include <cstdint>
#include <memory>

#include "trace/flight_recorder.hpp"
#include "trace/output.hpp"
#include "trace/sink.hpp"

namespace gpuprof::trace {

// Starts a trace and returns its number, from 1. Throws std::bad_alloc, std::system_error.
std::uint32_t open(OutputOptions options);
// The same for one that is kept in memory.
std::uint32_t open(RecorderOptions options);

// The flight recorder of that number; null if none is open.
std::shared_ptr<FlightRecorder> find_recorder(std::uint32_t number);

// Has the writer thread begin its next round now.
void wake_writer() noexcept;

// Events that end from now on do not belong to the trace, which stays open until close().
void end(std::uint32_t number) noexcept;

// Writes the rest, completes the file and returns the last state. Returns a default State for a
// trace that is not open, or that another thread is closing.
State close(std::uint32_t number);

// Waits until all earlier events are in the file.
State flush(std::uint32_t number);

State state(std::uint32_t number);

}  // namespace gpuprof::trace
