// The seam between timing and the device: all that the rest of timing/ knows of CUDA.
//
// cuda_device.cpp implements it; a build without CUDA's headers has cuda_absent.cpp in its place.
// Functions marked noexcept serve scopes, which never raise into the code they time: they leave the
// reason on the sample and note one warning. Streams are CUDA stream handles as integers. All of it
// is safe from any thread; nothing here waits unless its name says so.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "timing/sample.hpp"

namespace gpuprof::timing::device {

// Throws driver::Error(kUnavailable) if there is no usable device. Initialises the driver.
void require();

// Whether this process uses CUDA already, and on this thread: a context is current. Initialises
// nothing and makes no context.
bool current_on_this_thread() noexcept;

// Whether the driver's library is initialised in this process, by anyone.
bool initialised_in_process() noexcept;

// Whether a sticky error has poisoned the driver for this process.
bool poisoned() noexcept;

// Whether this is a forked child of a process that used the driver.
bool forked() noexcept;

// The ordinal of the device that a clock's context is on.
int ordinal_of(const EventClock* clock) noexcept;

// Takes an event pair for `sample.stream`, asks whether the stream is being captured, and records
// the start. Afterwards the sample is open with its pair, or final: kDropped, kSkipped, kFailed. On
// a capturing stream it is skipped unless `in_capture`, when it records event nodes. A stream
// without a context of its own (the legacy one on a thread with no current context) belongs to
// device `ordinal`.
void begin(Sample& sample, bool in_capture, int ordinal) noexcept;

// Records the end on `stream` and queues the pair (the queue keeps a reference), or leaves the
// sample final. A sample that `keeps_pair` is not queued: whoever owns it waits for it. Returns
// whether it was queued, in which case the statistics get it from there.
bool end(Sample& sample, std::uintptr_t stream) noexcept;
inline bool end(Sample& sample) noexcept { return end(sample, sample.stream); }

// Whether a span that begins with `sample` can end on `stream`: a stream of the same context.
// Throws driver::Error.
bool may_end_on(const Sample& sample, std::uintptr_t stream);

// Ends like end(), waits for everything on the stream's context, and returns for how many device
// milliseconds other streams went on after this one was done. Leaves the sample final. Throws
// driver::Error.
double end_and_wait_for_all(Sample& sample);

// Whether some stream is slow. For is_slow() and QueueWatch.
inline std::atomic<bool> any_slow{false};
bool is_one_of_the_slow(std::uintptr_t stream) noexcept;

// Whether a record on this stream took more than 50 microseconds the last time: its queue is full,
// and the caller should let other threads run meanwhile.
inline bool is_slow(std::uintptr_t stream) noexcept {
  return any_slow.load(std::memory_order_relaxed) && is_one_of_the_slow(stream);
}

// How long queueing something on the stream took, for is_slow().
void note_queue_time(std::uintptr_t stream, HostNanoseconds took) noexcept;

// Reads out what the GPU has finished and hands it on, without waiting for the GPU; waits for
// another thread that is doing so.
void drain() noexcept;

// Waits for `sample`, which has been left, until `until` (host clock). True once it is final; a
// captured sample is read again. A failure of the driver leaves the sample kFailed. Polls with
// sleeps up to 1 ms.
bool wait(Sample& sample, HostNanoseconds until) noexcept;

// Reads the last replay's time of a captured sample into `ms`. False while the replay is running.
// Throws driver::Error: kNotReplayed before the first replay, kInvalidState while the capture that
// it was recorded into is still open.
bool read_captured(const Sample& sample, double& ms);

// References to the samples that end the queues now: once they are final, so is all before them.
std::vector<SampleRef> pending_tails();

struct PendingCount {
  const Path* path;
  std::uint64_t count;
};
std::vector<PendingCount> pending_counts();

// Gives the events of a dying sample back, or destroys them if a graph has them. Never calls a
// driver that is gone.
void forget_events(Sample& sample) noexcept;

// Destroys pooled events and lets go of primary contexts whose events are all idle. Returns how
// many event pairs are still in use.
std::size_t release_idle() noexcept;

// Waits until all work on the stream's context is done (cuCtxSynchronize), unless the stream is
// being captured, which that would break. Throws driver::Error.
void synchronize(std::uintptr_t stream, int ordinal);

// The number of a stream, which no other of the process ever has, as its handle may; 0 for a
// default stream, and where the driver does not tell. Throws driver::Error (kInvalidState) if the
// stream is being captured, which the question would not survive.
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
