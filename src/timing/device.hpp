// What timing/ needs of CUDA: records, waits and drains.
//
// Implemented by cuda_device.cpp.
// Functions marked noexcept serve scopes, which never raise into the code they time: a failure is
// kept on the sample and noted as one warning. Streams are CUDA stream handles as integers;
// `ordinal` is the device of a default stream on a thread without a context. Any thread. Nothing
// waits unless its name or comment says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "driver/process.hpp"
#include "timing/sample.hpp"
#include "timing/statistics.hpp"

namespace gpuprof::timing::device {

// Initialises the driver. Throws driver::Error(kUnavailable) if there is no usable device.
void require();
// Whether it is initialised, and the call above returns at once.
bool is_ready() noexcept;

// Whether this process uses CUDA and this thread has a current context. Initialises nothing.
bool current_on_this_thread() noexcept;

// Whether CUDA is initialised in this process, by anyone.
bool initialised_in_process() noexcept;

// Whether a sticky error has poisoned the driver for this process.
inline bool poisoned() noexcept {
  return (driver::blocked.load(std::memory_order_relaxed) & driver::kSticky) != 0;
}

// Whether this is a forked child of a process that used the driver.
inline bool forked() noexcept {
  return (driver::blocked.load(std::memory_order_relaxed) & driver::kForked) != 0;
}

// Whether calls on the stream are to be made by this thread: it is being captured, or its handle
// means another stream on each thread. Also where that cannot be told, as the context is gone;
// `clock` is that of what the calls belong to, if there is one. Initialises nothing.
bool belongs_to_thread(std::uintptr_t stream, EventClock* clock) noexcept;

// The ordinal of the device of a clock's context.
int ordinal_of(const EventClock* clock) noexcept;

// Takes an event pair and records the start on `sample.stream`. Leaves the sample open with its
// pair, or final: kDropped, kSkipped, kFailed. On a capturing stream it is skipped, or with
// `in_capture` its records become event nodes.
void begin(Sample& sample, bool in_capture, int ordinal) noexcept;

// Records the end on `stream` and queues the pair (the queue owns a reference), or leaves the
// sample final. Returns whether it was queued: then the queue delivers it. A sample that
// `keeps_pair` is not queued; its owner waits for it.
bool end(Sample& sample, std::uintptr_t stream) noexcept;
inline bool end(Sample& sample) noexcept { return end(sample, sample.stream); }

// Tells the capture that labels its nodes by `sample` that the scope is left, where end() is not
// called because begin() left the sample final.
void leave_capture(const Sample& sample) noexcept;

// Whether a span that begins with `sample` can end on `stream`: one of the same context. Throws
// driver::Error.
bool may_end_on(const Sample& sample, std::uintptr_t stream);

// Ends like end(), waits for all work of the context, and returns for how many milliseconds of GPU
// time other streams ran after this one was done. Leaves the sample final. Throws driver::Error.
double end_and_wait_for_all(Sample& sample);

// Reads and delivers what the GPU has finished. Does not wait for the GPU, but for another thread
// that is doing the same.
void drain() noexcept;

// Waits for a closed sample until `until` (host clock), polling with sleeps up to 1 ms. True once
// it is final; a captured sample is read again. A driver failure leaves it kFailed.
bool wait(Sample& sample, HostNanoseconds until) noexcept;

// Reads the last replay's time of a captured sample into `ms`. False while the replay runs. Throws
// driver::Error: kNotReplayed before the first replay and while the capture is still open.
bool read_captured(const Sample& sample, double& ms);

// References to the last sample of each queue: once these are final, so is all before them.
std::vector<SampleRef> pending_tails();

struct PendingCount {
  const Path* path;
  std::uint64_t count;
};
std::vector<PendingCount> pending_counts();

// The statistics with what is pending. Rows of which nothing is measured yet are the last.
std::vector<Row> rows_with_pending(bool with_bins = false);

// What the events of scopes tell of the GPU's work.
enum class Work : std::uint8_t {
  kUnseen,     // no scope has recorded an event yet
  kUnderWay,   // the end of a scope is not reached
  kScopeOpen,  // all ends are reached, but a scope is open: what it launched is not known
  kNone,
};
// Adds the threads that left the last scope of each stream, as pthread_self() names them. Asks
// about gpuprof's own events alone, in a way that no capture forbids.
Work work_left(std::vector<std::uintptr_t>& threads) noexcept;

// Gives the events of a failed or dying sample back, or destroys them if they are a graph's. Never
// calls a driver that is gone.
void forget_events(Sample& sample) noexcept;

// Destroys pooled events and releases primary contexts whose events are all idle. Returns how many
// event pairs are still in use.
std::size_t release_idle() noexcept;

// Waits for all work of the stream's context (cuCtxSynchronize), unless the stream is being
// captured, which the wait would break. Throws driver::Error.
void synchronize(std::uintptr_t stream, int ordinal);

// The driver's unique number of a stream; a handle may be reused. 0 for a default stream, and where
// the driver does not tell. Throws driver::Error(kInvalidState) if the stream is being captured,
// which the question would break.
std::uint64_t stream_id(std::uintptr_t stream);

struct Calibration {
  int device = 0;
  double tick_ns = 0.0;    // greatest common step of all readings
  double idle_ns = 0.0;    // median of an empty pair on an idle stream
  double queued_ns = 0.0;  // the same behind a closed gate; nan where the device has no gate
  int pairs = 0;           // how many were read for each
};

// Measures what an empty interval reads on device `ordinal`. Waits. Throws driver::Error.
Calibration calibrate(int ordinal);

}  // namespace gpuprof::timing::device
