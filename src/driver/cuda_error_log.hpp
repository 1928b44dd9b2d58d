// The driver's error log (CUDA 12.9 and later): why it refused a call.
//
// The driver keeps the last hundred lines of the process. On older drivers there is no log, and all
// of this does nothing. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpuprof::driver {

struct Table;

// Remembers the end of the log. Called once, after cuInit.
void start_log(const Table& table) noexcept;

// The lines since the last call: those of the calling thread if there are any, else all; at most 2
// KiB, joined by " | ". Slow: only for errors.
std::string log_since_last_call() noexcept;

// A place in the log. Zero is its beginning.
using LogPosition = std::uint32_t;

// The end of the log. One driver call.
LogPosition log_position(const Table& table) noexcept;

struct LogLine {
  bool own;  // of the calling thread
  std::string text;
};

// All lines after `position` that the driver still has, oldest first. Slow.
std::vector<LogLine> log_since(LogPosition position) noexcept;

}  // namespace gpuprof::driver
