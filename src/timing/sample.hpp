// One measured span: made by each entry of a scope; and where finished spans go.
//
// A Sample is reference counted, because two sides hold it: the user, who may read it much later or
// never, and the queue of pending spans. The thread that opened it writes its fields until it
// leaves kOpen; after that only the event clock that holds it does, and stores `status` last
// (release), so that a reader who loaded kDone (acquire) may read the rest. Times are host
// nanoseconds and device milliseconds, as the driver gives them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "driver/error.hpp"
#include "timing/clock.hpp"
#include "timing/path.hpp"
#include "timing/timeline.hpp"
#include "timing/work.hpp"

struct CUevent_st;  // of cuda.h

namespace gpuprof::timing {

enum class SampleStatus : std::uint8_t {
  kOpen,      // entered, not left
  kPending,   // left; the GPU has not reached the end yet
  kDone,      // measured
  kDisabled,  // timing was off
  kDropped,   // too many were pending; nothing was recorded
  kSkipped,   // inside a foreign stream capture; nothing was recorded
  kCaptured,  // recorded into a graph; each replay gives it a new time
  kFailed,    // the driver returned an error; see `error`
  kLeftOut,   // not measured, to stay within the budget
};

// Whether nothing was to be measured.
inline bool is_off(SampleStatus status) noexcept {
  return status == SampleStatus::kDisabled || status == SampleStatus::kLeftOut;
}

// A clock is named by a small number: these two, and from kFirstNamed on what clock_id() gave out.
using ClockId = std::uint16_t;
inline constexpr ClockId kCudaClock = 0;
inline constexpr ClockId kCpuClock = 1;

// The number of a clock's name, and back. Any thread; at most 1000 names, then std::length_error.
ClockId clock_id(const std::string& name);
std::string clock_name(ClockId id);

// What ran between a span's two events.
enum class SpanKind : std::uint8_t {
  kScope,         // what the timed code launched
  kReplay,        // one launch of a graph
  kInsideReplay,  // a scope that was captured into a graph, in one launch of it
};

struct Sample {
  std::atomic<std::uint32_t> references{1};
  std::atomic<SampleStatus> status{SampleStatus::kOpen};
  SpanKind kind = SpanKind::kScope;
  ClockId clock = kCpuClock;
  bool counted = true;          // belongs into the statistics
  bool body_raised = false;     // the timed code ended with an exception
  bool device_started = false;  // CUDA came into use while this CPU sample was open
  bool keeps_pair = false;      // a Timer's: the pair stays with it and is read on demand
  bool labels_nodes = false;    // a capture has noted that this scope is open
  const Path* path = nullptr;
  std::uint64_t epoch = 0;  // the statistics' epoch when it was entered
  std::uintptr_t stream = 0;
  std::uint64_t stream_id = 0;  // contexts::id_of(stream) while traces are written, else 0
  std::uintptr_t queue = 0;     // of `events`, where it is pending
  HostNanoseconds host_begin = 0;
  HostNanoseconds host_end = 0;
  double device_ms = 0.0;
  // When the GPU began, for timeline::place(). Until the sample is final only `anchor` is set: the
  // newest one when the start was recorded. Without a clock: not wanted.
  GpuMark gpu_begin;
  EventClock* events = nullptr;  // whose pair it holds
  CUevent_st* start = nullptr;   // a CUevent
  CUevent_st* end = nullptr;
  // Owns both events where they are nodes of a graph.
  std::shared_ptr<const GraphEvents> in_graph;
  std::uint32_t generation = 0;  // of the process that entered it
  std::uint32_t thread = 0;      // the kernel's number of the thread that left it; 0: not known
  std::uint16_t depth = 0;       // how many scopes were open around it
  std::uint32_t weight = 1;      // the visits that it stands for, where a budget leaves some out
  std::uint32_t draw = 0;        // the decision to measure that it shares; see Visit
  std::uint32_t enter_ns = 0;    // what its entry cost, where that is read; else 0
  Sample* next = nullptr;        // in the queue that holds it
  std::unique_ptr<SpanDetails> details;
  std::shared_ptr<const driver::Error> error;

  [[nodiscard]] bool external() const noexcept { return in_graph != nullptr; }
  [[nodiscard]] double host_ms() const noexcept { return milliseconds(host_end - host_begin); }
  [[nodiscard]] SampleStatus load_status() const noexcept {
    return status.load(std::memory_order_acquire);
  }
  void finish(SampleStatus final_status) noexcept {
    status.store(final_status, std::memory_order_release);
  }
  void fail(const driver::Error& why) noexcept;
};

// A fresh open sample with one reference, from a pool: the thread's own, which needs no lock, else
// one that all share. Any thread; throws std::bad_alloc.
Sample* make_sample();
void add_reference(Sample* sample) noexcept;
void drop_reference(Sample* sample) noexcept;

// How many samples exist in memory, pooled ones included. For tests of boundedness.
std::uint64_t samples_in_memory() noexcept;

// Where finished samples go: functions that get samples of any final status, in batches, on
// whichever thread found them finished, without any lock of timing/ held. A sink must not block or
// throw. The statistics are the first one.
using Sink = void (*)(const Sample* const* samples, std::size_t count) noexcept;

// Adds a sink for the rest of the process. At most 4; more are std::length_error. Any thread.
void add_sink(Sink sink);

// Hands finished samples to all sinks.
void deliver(const Sample* const* samples, std::size_t count) noexcept;
inline void deliver(const Sample* sample) noexcept { deliver(&sample, 1); }

// Owns one reference.
class SampleRef {
 public:
  SampleRef() = default;
  explicit SampleRef(Sample* owned) noexcept : sample_(owned) {}
  SampleRef(const SampleRef& other) noexcept : sample_(other.sample_) {
    if (sample_ != nullptr) add_reference(sample_);
  }
  SampleRef(SampleRef&& other) noexcept : sample_(std::exchange(other.sample_, nullptr)) {}
  SampleRef& operator=(SampleRef other) noexcept {
    std::swap(sample_, other.sample_);
    return *this;
  }
  ~SampleRef() {
    if (sample_ != nullptr) drop_reference(sample_);
  }
  [[nodiscard]] Sample* get() const noexcept { return sample_; }
  [[nodiscard]] Sample* release() noexcept { return std::exchange(sample_, nullptr); }
  Sample* operator->() const noexcept { return sample_; }
  explicit operator bool() const noexcept { return sample_ != nullptr; }

 private:
  Sample* sample_ = nullptr;
};

}  // namespace gpuprof::timing
