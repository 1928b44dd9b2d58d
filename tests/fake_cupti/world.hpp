// A CUPTI for tests: activity buffers, records and switches, without a GPU.
//
// It has the functions that gpuprof uses, with CUPTI's rules as far as gpuprof relies on them: one
// pair of buffer callbacks, the last one registered; records only of what is enabled; a buffer is
// given back when it is full or flushed, and dropped records are counted where none was given.
// Tests say what ran with fakecupti_*, which count as no call of CUPTI. Guarded by one lock, which
// is free while a callback runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace fakecupti {

using Result = int;
using Requested = void (*)(std::uint8_t**, std::size_t*, std::size_t*);
using Completed = void (*)(void*, std::uint32_t, std::uint8_t*, std::size_t, std::size_t);

constexpr Result kSuccess = 0;
constexpr Result kInvalidParameter = 1;
constexpr Result kInvalidOperation = 7;
constexpr Result kMaxLimitReached = 12;
constexpr int kMemcpy = 1;
constexpr int kMemset = 2;
constexpr int kDriver = 4;
constexpr int kRuntime = 5;
constexpr int kKernel = 10;
constexpr int kPeerCopy = 22;

// What lies in a buffer: where each record begins. The real CUPTI knows it by the records' sizes.
struct Buffer {
  std::uint8_t* address = nullptr;
  std::size_t bytes = 0;
  std::size_t used = 0;
  std::vector<std::size_t> starts;
};

struct Fault {
  Result code = kSuccess;
  int calls_before = 0;
};

// What a reset makes anew.
struct State {
  std::set<int> kinds;
  Requested requested = nullptr;
  Completed completed = nullptr;
  Buffer active;
  std::map<std::uint8_t*, std::vector<std::size_t>> starts;  // of buffers given back
  std::size_t dropped = 0;
  std::map<std::string, std::uint64_t> calls;
  std::map<std::string, Fault> faults;
  int thread_ids = 0;
  double rate = 1.0;  // of the clock, against CLOCK_REALTIME
  bool on_own_thread = false;
  bool keeps = false;  // full buffers until a flush, as while kernels in them still run
  bool stuck = false;  // a flush gives nothing back
  int running = 0;     // how many flushes find kernels that still run; a forced one does not care
  std::vector<Buffer> kept;
  std::size_t extra = 0;  // bytes behind the fields of each record, as later versions have them
  std::size_t struct_bytes = 0;
  std::uint64_t other_records = 0;  // that the other tool's callback got
};

struct World : State {
  std::mutex writing;  // taken before the other: one thread at a time puts records or flushes
  std::mutex mutex;    // of all the rest; free while a callback runs
  std::set<std::uint8_t*> others;  // lent by the other tool
};

World& world();

std::uint64_t clock_now();

// Puts a record into the active buffer, or drops it. The next one lies `step` bytes behind it.
void put(const void* record, std::size_t bytes, std::size_t step);

// Gives buffers back: those whose kernels have ended, or with `forced` all.
void flush(bool forced);

// The callbacks of the other tool, which knows its own buffers alone, as torch's profiler does.
void other_requested(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most);
void other_completed(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t bytes,
                     std::size_t valid);

}  // namespace fakecupti
