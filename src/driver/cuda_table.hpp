// The CUDA driver as a table of functions, opened on first use.
//
// loaded() is the table once somebody needed it; ready() also initialises CUDA. Both are safe from
// any thread. A failure stays what it was, the same words each time, except where the driver may
// answer something else the next time. An entry that the driver does not have points at a function
// that answers kMissingEntry, so that a call through it becomes an error that names it; nothing
// ever jumps to null.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstdint>
#include <string>
#include <vector>

#include "driver/cuda_entry_points.hpp"
#include "driver/error.hpp"
#include "driver/process.hpp"

namespace gpuprof::driver {

#define GPUPROF_X(name, version) PFN_##name##_v##version name;
#define GPUPROF_F(name, version, older) PFN_##name##_v##version name;
#define GPUPROF_S(name, version, older) \
  PFN_##name##_v##version name;         \
  PFN_##name##_v##older name##_v##older;

struct EventEntries {
  GPUPROF_EVENT_ENTRY_POINTS(GPUPROF_X, GPUPROF_F)
};

struct Table : private EventEntries {
  GPUPROF_DRIVER_ENTRY_POINTS(GPUPROF_X, GPUPROF_F, GPUPROF_S)

 private:
  friend class EventAccess;  // of cuda_events.hpp: whoever calls these has asked whether they may
  friend struct TableFiller;
};

#undef GPUPROF_X
#undef GPUPROF_F
#undef GPUPROF_S

// What a call through a missing entry answers: the largest number the enumeration can hold, and far
// from those that drivers use.
inline constexpr auto kMissingEntry = static_cast<CUresult>(1023);

// The table, opening the library if need be; cuInit is not called. Throws Error(kUnavailable).
const Table& loaded();

// The table if it has been opened before, else null. Never throws, one load.
const Table* loaded_or_null() noexcept;

// The table, with CUDA initialised and at least one device. Throws Error(kUnavailable), and what
// throw_if_blocked() throws.
const Table& ready();

// The table if some part of this process has opened the library and initialised CUDA, else null.
// Opens our own view of the library in that case, but never initialises anything. Never throws.
const Table* in_use_or_null() noexcept;

// Throws the error that stands for the bits in `blocked`, if there is one.
void throw_if_blocked();

// The same as a value, for samples that keep their error. Only while something is blocked.
Error blocked_error();

// The error for `status` of `call`, with the driver's name and log. Notes sticky errors and a
// driver that is gone, so that later calls are refused without asking it.
Error error_of(CUresult status, const char* call);

inline void check(CUresult status, const char* call) {
  if (status != CUDA_SUCCESS) throw error_of(status, call);
}

struct DriverInfo {
  bool available = false;
  std::string reason;                // why not
  std::string path;                  // what was opened
  std::string override_path;         // GPUPROF_CUDA_DRIVER in force
  std::vector<std::string> tried;    // the candidates
  std::vector<std::string> missing;  // entry points that the driver lacks
  int version = 0;                   // as CUDA counts: 13000
};

// What is known of the driver. Opens and initialises it; never throws for its absence.
DriverInfo driver_info();

}  // namespace gpuprof::driver
