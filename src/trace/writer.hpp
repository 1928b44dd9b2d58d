// The open traces of this process and the thread that writes them.
//
// The thread runs while a trace is open. It takes queued events, places GPU times, and writes a few
// times a second, so that a killed process loses less than a second. Any thread may call. open(),
// close() and flush() wait for the thread and must not be called under a lock. A failure to write
// becomes one warning and ends that trace. A forked child has no open traces.
#pragma once

#include <cstdint>
#include <string>

#include "trace/output.hpp"

namespace gpuprof::trace {

// Puts GPU times on the host's clock. Called on the writer thread; want() also by open() and
// close().
struct GpuClock {
  enum class Answer : std::uint8_t { kPlaced, kNotYet, kNever };
  void (*want)(bool on) noexcept;  // begins or stops the work that place() needs; calls are counted
  void (*refresh)() noexcept;      // called now and then, so that earlier times can be placed
  Answer (*place)(const GpuMoment& moment, HostNanoseconds& at, HostNanoseconds& error) noexcept;
};
// Before the first open().
void set_gpu_clock(const GpuClock& clock) noexcept;

// Starts a trace and returns its number, from 1. Throws std::bad_alloc, std::system_error.
std::uint32_t open(OutputOptions options);

struct State {
  bool open = false;
  bool failed = false;
  std::string error;           // why it failed
  std::uint64_t events = 0;    // written, or about to be
  std::uint64_t dropped = 0;   // by all threads since it was opened
  std::uint64_t unplaced = 0;  // GPU spans that could not be placed
  std::uint64_t bytes = 0;
  HostNanoseconds gpu_error = 0;   // the largest error of a GPU time
  HostNanoseconds writer_cpu = 0;  // CPU time of the writer thread since it started

  void fail(const std::string& why) noexcept {
    failed = true;
    try {
      error = why;
    } catch (...) {  // out of memory: failed without words
    }
  }
};

// Writes the rest, completes the file and returns the last state. Returns a default State for a
// trace that is not open, or that another thread is closing.
State close(std::uint32_t number);

// Waits until all earlier events are in the file.
State flush(std::uint32_t number);

State state(std::uint32_t number);

}  // namespace gpuprof::trace
