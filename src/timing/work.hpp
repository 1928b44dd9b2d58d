// What a span was told of its work, and what the allocators did during it.
//
// Few samples have either, so a Sample owns a SpanDetails only then. The thread that opened the
// sample writes the work until the sample is left. The memory is read after the end was recorded,
// when others may already see the sample: `memory_read` is stored last (release), and who loaded it
// as true (acquire) may read the rest. FLOP, bytes, milliseconds.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpuprof::timing {

struct Sample;

// Why figures of an allocator are missing, or what is special about them. The first five come from
// gpuprof._frameworks.memory, which has the same numbers; gpuprof._timing.memory has the texts.
enum class MemoryNote : std::uint8_t {
  kNone = 0,
  kSum = 1,          // of two allocators' peaks, so an upper bound
  kNoAllocator = 2,  // neither torch nor CuPy is in use
  kNoPeak = 3,       // the allocator does not tell its peak
  kRefused = 4,      // the allocator raised
  kOtherClock = 5,   // the sample is not of the CUDA clock
  kCapture = 6,      // what the capture allocated; replays allocate nothing
  kReplay = 7,       // a replay of a graph
};

struct MemoryUse {
  double peak = 0.0;      // above the level at the entry; nan: not known
  double absolute = 0.0;  // the most that was allocated at once; nan: not known
  double change = 0.0;    // from the entry to the exit
  MemoryNote note = MemoryNote::kNone;
};

struct SpanDetails {
  double flops = -1.0;   // below 0: not told
  double nbytes = -1.0;  // below 0: not told
  bool wants_memory = false;
  std::atomic<bool> memory_read{false};
  MemoryUse memory;

  [[nodiscard]] bool has_work() const noexcept { return flops >= 0.0 || nbytes >= 0.0; }
};

// Those of the sample, made where it has none. Throws std::bad_alloc.
SpanDetails& details_of(Sample& sample);
// Gives those of a replay's sample the work of the captured one. Throws std::bad_alloc.
void copy_details(const SpanDetails& captured, Sample& replay);

// The work of many samples, and the time of those that have any.
struct WorkSums {
  std::uint64_t count = 0;  // samples with any work
  std::uint64_t flops_count = 0;
  double flops = 0.0;
  double flops_ms = 0.0;
  std::uint64_t bytes_count = 0;
  double nbytes = 0.0;
  double bytes_ms = 0.0;

  // Of a sample that stands for `weight` of them.
  void add(const SpanDetails& details, double ms, std::uint32_t weight) noexcept;
  void add(const WorkSums& others) noexcept;
};

struct MemorySums {
  std::uint64_t count = 0;  // entries whose memory was read
  double peak = 0.0;        // the largest of those known; nan: of none
  double absolute = 0.0;
  double change = 0.0;  // the sum
  // The newest of an entry whose memory was read, else of one whose was not.
  MemoryNote note = MemoryNote::kNone;

  [[nodiscard]] bool asked() const noexcept { return count > 0 || note != MemoryNote::kNone; }
  void add(const MemoryUse& use) noexcept;
  void add(const MemorySums& newer) noexcept;
};

}  // namespace gpuprof::timing
