// The driver's own error log (CUDA 12.9 and later): what it says of a call that it refused.
//
// The log is one for the process, and the driver keeps its last hundred lines. On older drivers
// everything here does nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpuprof::driver {

struct Table;

// Remembers where the log stands. Once, after cuInit.
void start_log(const Table& table) noexcept;

// The new lines since the last question, those of the calling thread if there are any: at most 2
// KiB of them, joined by " | "; empty if there are none or the driver keeps no log. Any thread.
// Called only on the way to an error, so it may be slow.
std::string log_since_last_call() noexcept;

// A place in the log. Zero is its beginning.
using LogPosition = std::uint32_t;

// Where the log stands now. Any thread, one driver call.
LogPosition log_position(const Table& table) noexcept;

struct LogLine {
  bool own;  // of the calling thread
  std::string text;
};

// All lines after `position`, oldest first, as far as the driver still has them. Any thread; slow.
std::vector<LogLine> log_since(LogPosition position) noexcept;

}  // namespace gpuprof::driver
