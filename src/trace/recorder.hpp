// Where threads leave events for the writer.
//
// Each thread has a queue of chunks of its own: it writes, the writer thread reads, and neither
// takes a lock but to get the next chunk (once in Chunk::kEvents events). All that waits, chunks
// and what events have on the heap, is bounded together; past the limit an event is dropped and
// counted. The thread that forked finds its queue empty in the child.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>

#include "trace/event.hpp"

namespace gpuprof::trace {

// Whether some trace takes what the program does.
inline std::atomic<bool> recording{false};
inline bool is_recording() noexcept { return recording.load(std::memory_order_relaxed); }

// Events are made where they stand, so that a new chunk costs no more than its memory.
struct Chunk {
  static constexpr std::uint32_t kEvents = 255;
  alignas(64) std::atomic<std::uint32_t> written{0};
  std::atomic<Chunk*> next{nullptr};
  alignas(64) unsigned char storage[kEvents * sizeof(Event)];

  [[nodiscard]] void* place(std::uint32_t index) noexcept {
    return &storage[index * sizeof(Event)];
  }
  [[nodiscard]] Event& event(std::uint32_t index) noexcept {
    return *std::launder(static_cast<Event*>(place(index)));
  }
};

inline constexpr std::size_t kDefaultBufferBytes = std::size_t{32} << 20U;

// How much may wait. Throws std::bad_alloc, and then the limit is what it was.
void set_buffer_limit(std::size_t bytes);

// One thread's queue, from the thread's side.
struct Queue {
  Chunk* chunk = nullptr;
  std::uint32_t used = 0;  // of `chunk`
  std::uint32_t tid = 0;   // the kernel's number of the thread
};

// The queue of this thread. Made at the first use, which may take a lock; null for lack of memory,
// and once the thread's locals are being destroyed.
Queue* queue_of_this_thread() noexcept;

// Room for one event in the thread's queue, with default values; null if there is none, which is
// counted. It is the writer's once publish() is called, which must be the next call on this thread.
Event* claim(Queue& queue) noexcept;
inline void publish(Queue& queue) noexcept {
  queue.chunk->written.store(++queue.used, std::memory_order_release);
}

// Notes an event; takes over its extra, also where there is no room.
void note(const Event& event) noexcept;

// The kernel's number of this thread.
std::uint32_t thread_id() noexcept;

// How many events found no room since the process began.
std::uint64_t dropped() noexcept;

// Deletes the extra of an event that was taken, which leaves room for others.
struct FreeExtra {
  void operator()(Extra* extra) const noexcept;
};
using TakenExtra = std::unique_ptr<Extra, FreeExtra>;

// Calls `take(event, tid)` for all that is published, oldest first for each thread; `tid` is that
// of the thread that noted it, and the event's extra is the callee's, as a TakenExtra. One caller
// at a time: the writer.
using Take = void (*)(void* context, const Event& event, std::uint32_t tid);
void take_published(Take take, void* context);

// Gives back memory that no thread needs now. For when the last trace has been closed.
void release_chunks() noexcept;

}  // namespace gpuprof::trace
