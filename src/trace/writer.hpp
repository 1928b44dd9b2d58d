// The open traces of this process and the thread that writes them.
//
// The thread runs while at least one trace is open. It takes what the threads noted, has GPU times
// placed, and writes a few times a second, so that a killed process loses less than a second. Any
// thread may call; open() and close() may take a while and must not be called under a lock. A
// failure to write is noted as one warning and ends that trace, never the program. In a forked
// child there are no open traces.
#pragma once

#include <cstdint>
#include <string>

#include "trace/output.hpp"

namespace gpuprof::trace {

// How GPU times come onto the host's clock: supplied by whoever knows both sides. Called on the
// writer thread, want() also by open() and close().
struct GpuClock {
  enum class Answer : std::uint8_t { kPlaced, kNotYet, kNever };
  void (*want)(bool on) noexcept;  // times will be asked for, or no longer; calls are counted
  void (*refresh)() noexcept;      // now and then, so that later times can be placed
  Answer (*place)(const GpuMoment& moment, HostNanoseconds& at, HostNanoseconds& error) noexcept;
};
// Before the first open().
void set_gpu_clock(const GpuClock& clock) noexcept;

// Starts a trace and returns its number, from 1. Throws std::bad_alloc, std::system_error (no
// thread).
std::uint32_t open(OutputOptions options);

struct State {
  bool open = false;
  bool failed = false;
  std::string error;           // why it failed
  std::uint64_t events = 0;    // written, or about to be
  std::uint64_t dropped = 0;   // found no room since it was opened, in any thread
  std::uint64_t unplaced = 0;  // GPU spans that could not be placed
  std::uint64_t bytes = 0;
  HostNanoseconds gpu_error = 0;   // the largest error of a GPU time
  HostNanoseconds writer_cpu = 0;  // what the writer thread has cost since it started

  void fail(const std::string& why) noexcept {
    failed = true;
    try {
      error = why;
    } catch (...) {  // out of memory: failed without words
    }
  }
};

// Writes what is left, completes the file and returns the last state. A trace that is not open, or
// is being closed by another thread, gives a default State.
State close(std::uint32_t number);

// Waits until all that was noted before is in the file.
State flush(std::uint32_t number);

State state(std::uint32_t number);

}  // namespace gpuprof::trace
