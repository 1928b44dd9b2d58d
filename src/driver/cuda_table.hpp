// The CUDA driver as a table of functions, opened on first use.
//
// loaded() opens the library, ready() also initialises CUDA. Any thread. A failure is remembered
// and thrown again, except where the driver may answer differently the next time. An entry that the
// driver lacks points at a function that returns kMissingEntry, so that a call through it becomes
// an error that names it.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "driver/cuda_entry_points.hpp"
#include "driver/cuda_hangs.hpp"
#include "driver/error.hpp"
#include "driver/process.hpp"

namespace gpuprof::driver {

// Of entries that are newer than the oldest headers that this is built with.
using PFN_cuGraphNodeGetToolsId_v13010 = CUresult(CUDAAPI*)(CUgraphNode, unsigned long long*);
using PFN_cuGraphExecGetId_v13010 = CUresult(CUDAAPI*)(CUgraphExec, unsigned int*);

// NOLINTBEGIN(bugprone-macro-parentheses): they are names of what is declared
#define GPUPROF_X(name, version) Entry<PFN_##name##_v##version> name;
#define GPUPROF_F(name, version, older) Entry<PFN_##name##_v##version> name;
#define GPUPROF_S(name, version, older) \
  Entry<PFN_##name##_v##version> name;  \
  Entry<PFN_##name##_v##older> name##_v##older;
// NOLINTEND(bugprone-macro-parentheses)

struct EventEntries {
  GPUPROF_EVENT_ENTRY_POINTS(GPUPROF_X, GPUPROF_F)
};

struct Table : private EventEntries {
  GPUPROF_DRIVER_ENTRY_POINTS(GPUPROF_X, GPUPROF_F, GPUPROF_S)
  GPUPROF_OPTIONAL_ENTRY_POINTS(GPUPROF_X)

 private:
  friend class EventAccess;  // of cuda_events.hpp: the only way to call the event entries
  friend struct TableFiller;
};

#undef GPUPROF_X
#undef GPUPROF_F
#undef GPUPROF_S

// What a call through a missing entry returns: the largest number that the enumeration can hold,
// far from those in use.
inline constexpr auto kMissingEntry = static_cast<CUresult>(1023);

// The table; opens the library, but does not call cuInit. Throws Error(kUnavailable).
const Table& loaded();

// The table if the library is open, else null. One load.
const Table* loaded_or_null() noexcept;

// The same, and null while `blocked` is set.
inline const Table* usable_or_null() noexcept { return !is_blocked() ? loaded_or_null() : nullptr; }

// The table, with CUDA initialised and at least one device. Throws Error(kUnavailable), and what
// throw_if_blocked() throws. make_ready() does what is still to be done.
const Table& make_ready();
inline std::atomic<const Table*> ready_table{nullptr};  // null until CUDA is initialised
inline const Table& ready() {
  const Table* table = ready_table.load(std::memory_order_acquire);
  return table != nullptr && !is_blocked() ? *table : make_ready();
}

// Whether CUDA is initialised, so that ready() returns or throws at once.
inline bool is_ready() noexcept { return ready_table.load(std::memory_order_acquire) != nullptr; }

// The table if something in this process has initialised CUDA, else null. May open the library, but
// initialises nothing. Never throws.
const Table* in_use_or_null() noexcept;

// Throws the error for the bits in `blocked`, if any are set.
void throw_if_blocked();

// That error as a value. Only while a bit is set.
Error blocked_error();

// The error for `status` of `call`, with CUDA's name of it and the driver's log. Sticky errors and
// a driver that is gone set `blocked`, so that later calls are refused without calling the driver.
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

// Describes the driver. Opens and initialises it; never throws for its absence.
DriverInfo driver_info();

}  // namespace gpuprof::driver
