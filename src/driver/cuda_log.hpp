// The driver's own error log (CUDA 12.9 and later): what it says of a call that it refused.
//
// The log is one for the process. Only lines written since the last question are returned, those of
// the calling thread if there are any. On older drivers everything here does nothing.
#pragma once

#include <string>

namespace gpuprof::driver {

struct Table;

// Remembers where the log stands. Once, after cuInit.
void start_log(const Table& table) noexcept;

// The new lines, at most 2 KiB of them, joined by " | "; empty if there are none or the driver
// keeps no log. Any thread. Called only on the way to an error, so it may be slow.
std::string log_since_last_call() noexcept;

}  // namespace gpuprof::driver
