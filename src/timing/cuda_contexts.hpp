// Which event clock a stream belongs to.
//
// The clocks of the process, one for each live context that timing has met: the stream's own, else
// the current one, else the primary context of a device, which is retained. Any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "driver/cuda_table.hpp"
#include "timing/cuda_event_clock.hpp"

namespace gpuprof::timing::contexts {

inline CUstream as_stream(std::uintptr_t stream) noexcept {
  return reinterpret_cast<CUstream>(stream);
}

// A stream handle that stands for a stream of whichever context is current.
inline bool is_default_stream(std::uintptr_t stream) noexcept { return stream <= 2; }

// The number of a stream, which no other of the process ever has; its handle is given out again
// once it is destroyed. 0 where the driver does not tell. Never of a stream that is being captured.
inline std::uint64_t id_of(const driver::Table& table, std::uintptr_t stream) noexcept {
  unsigned long long id = 0;
  return table.cuStreamGetId(as_stream(stream), &id) == CUDA_SUCCESS ? id : 0;
}

// What tells a stream's queue from others in this process: its handle, but for that of the
// per-thread default stream, behind which each thread has a stream of its own.
std::uintptr_t queue_of(std::uintptr_t stream) noexcept;

struct Found {
  EventClock* clock;
  CUcontext to_push;  // what must be current for a call on the stream, null if it is already
  driver::EventAccess access;
};

// Throws driver::Error. `ordinal` is the device whose primary context a default stream means on a
// thread without a current context.
Found find(const driver::Table& table, std::uintptr_t stream, int ordinal);

// All clocks that are not lost.
std::vector<EventClock*> all();

// Takes lost clocks out of the registry. Call after note_failure().
void forget_lost() noexcept;

// Lets go of clocks none of whose pairs is out. Returns the number of pairs that are.
std::size_t release_idle() noexcept;

}  // namespace gpuprof::timing::contexts
