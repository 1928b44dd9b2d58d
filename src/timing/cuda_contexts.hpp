// Which event clock a stream belongs to.
//
// There is one clock for each live context that timing has met. A stream's context is its own; that
// of a default stream is the current one, else the primary context of a device, which is retained.
// Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "driver/cuda_table.hpp"
#include "timing/cuda_event_clock.hpp"

namespace gpuprof::timing::contexts {

inline CUstream as_stream(std::uintptr_t stream) noexcept {
  return reinterpret_cast<CUstream>(stream);
}

constexpr std::uintptr_t kPerThreadStream = 2;

// Whether the handle stands for a stream of the current context.
inline bool is_default_stream(std::uintptr_t stream) noexcept { return stream <= 2; }

// What must be current for calls on a stream of the clock's context: a default stream belongs to
// the current one. Null: nothing.
inline CUcontext to_push(std::uintptr_t stream, const EventClock& clock) noexcept {
  return is_default_stream(stream) ? clock.context() : nullptr;
}

// The driver's unique number of a stream; a handle may be reused after its stream is destroyed. 0
// where the driver does not tell. Breaks the capture of a stream that is being captured.
inline std::uint64_t id_of(const driver::Table& table, std::uintptr_t stream) noexcept {
  unsigned long long id = 0;
  return table.cuStreamGetId(as_stream(stream), &id) == CUDA_SUCCESS ? id : 0;
}

// Identifies a stream in this process: its handle, or for the per-thread default stream, which is
// one handle for as many streams as threads, a number of the thread.
std::uintptr_t queue_of(std::uintptr_t stream) noexcept;

struct Found {
  EventClock* clock;
  CUcontext to_push;  // must be current for calls on the stream; null: it already is
  driver::EventAccess access;
};

// `ordinal` is the device of a default stream on a thread without a context. Throws driver::Error.
Found find(const driver::Table& table, std::uintptr_t stream, int ordinal);

// A clock of the primary context of device `ordinal`, which it retains, in no registry: the caller
// releases the context. Throws driver::Error.
std::unique_ptr<EventClock> make_primary(const driver::Table& table, int ordinal);

// All clocks that are not lost.
std::vector<EventClock*> all();

// Removes lost clocks from the registry. Call it after note_failure().
void forget_lost() noexcept;

}  // namespace gpuprof::timing::contexts
