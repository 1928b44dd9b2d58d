// CUPTI as a table of functions, found and opened at run time.
//
// Nothing is linked and no header of CUPTI is needed: the declarations here are of our own words
// and hold for CUPTI of CUDA 12.0 and later, up to the last of CUDA 13. Two copies of CUPTI in one
// process get in each other's way, so one that is loaded already is always taken, or refused. Any
// thread. Nothing here starts a collection, and nothing ever subscribes to CUPTI's callbacks:
// there is one subscriber a process, and torch's profiler loses its GPU events if it is another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "driver/error.hpp"

namespace gpuprof::cupti {

using Result = int;

inline constexpr Result kSuccess = 0;
inline constexpr Result kEndOfBuffer = 12;  // MAX_LIMIT_REACHED
inline constexpr Result kNotInitialised = 15;
inline constexpr Result kInsufficientPrivileges = 35;
inline constexpr Result kHeldByAnother = 39;  // MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
inline constexpr Result kVirtualPrivileges = 40;
inline constexpr Result kUnknown = 999;

// Callback domains: whose functions an identifier counts.
inline constexpr int kDriverDomain = 1;
inline constexpr int kRuntimeDomain = 2;

inline constexpr std::uint32_t kForcedFlush = 1;
inline constexpr int kSystemThreadIds = 1;

using BufferRequested = void (*)(std::uint8_t** buffer, std::size_t* bytes, std::size_t* records);
using BufferCompleted = void (*)(void* context, std::uint32_t stream, std::uint8_t* buffer,
                                 std::size_t bytes, std::size_t valid_bytes);

// Null where this version of CUPTI lacks the function; only those marked may be.
struct Table {
  Result (*cuptiGetVersion)(std::uint32_t*);
  Result (*cuptiGetResultString)(Result, const char**);
  Result (*cuptiGetTimestamp)(std::uint64_t*);
  Result (*cuptiGetCallbackName)(int domain, std::uint32_t id, const char**);
  Result (*cuptiGetThreadIdType)(int*);
  Result (*cuptiSetThreadIdType)(int);
  Result (*cuptiActivityEnable)(int kind);
  Result (*cuptiActivityDisable)(int kind);
  Result (*cuptiActivityRegisterCallbacks)(BufferRequested, BufferCompleted);
  Result (*cuptiActivityFlushAll)(std::uint32_t flag);
  Result (*cuptiActivityGetNextRecord)(std::uint8_t*, std::size_t, void** record);
  Result (*cuptiActivityGetNumDroppedRecords)(void* context, std::uint32_t stream, std::size_t*);
  Result (*cuptiGetGraphNodeId)(void* node, std::uint64_t* id);
  // Null before 13.x. The first counts the kinds that anybody in the process has enabled.
  Result (*cuptiActivityGetEnabledKinds)(void*, int*, std::uint32_t*, std::uint32_t* count);
  Result (*cuptiActivityGetStructSize)(int kind, std::uint32_t version, std::size_t*);
};

struct Library {
  Table table{};
  std::uint32_t version = 0;  // as CUPTI counts: 18 is CUDA 12.0, 28 is 12.9, 130001 is 13.0
  std::string path;
};

// Opens CUPTI at the first call that finds it; later calls return the same. The order: what is in
// the process, `candidates`, the toolkit ($CUDA_HOME and $CUDA_PATH, else /usr/local/cuda), the
// loader's own search. Throws Error(kUnavailable) that says what was tried and what to do.
const Library& load(const std::vector<std::string>& candidates);

const Library* loaded_or_null() noexcept;

// The error for `result` of `call`: CUPTI's name of it, what it means and what to do.
driver::Error error_of(const Library& library, Result result, const char* call);

}  // namespace gpuprof::cupti
