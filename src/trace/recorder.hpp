// Queues of events, from the program's threads to the writer thread.
//
// Each thread writes to a queue of chunks of its own, which the writer reads, without a lock; once
// in Chunk::kEvents events it allocates the next chunk. Chunks and what events have on the heap are
// bounded together; past the limit an event is dropped and counted. Queues are empty in a forked
// child.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "trace/event.hpp"

namespace gpuprof::trace {

// Whether an open trace takes all events.
inline std::atomic<bool> recording{false};
inline bool is_recording() noexcept { return recording.load(std::memory_order_relaxed); }

// Events are constructed in place, so that a new chunk costs no more than its memory.
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

// Sets that limit.
void set_buffer_limit(std::size_t bytes) noexcept;

// One thread's queue, from the thread's side.
struct Queue {
  Chunk* chunk = nullptr;
  std::uint32_t used = 0;  // of `chunk`
  std::uint32_t tid = 0;   // the kernel's number of the thread
};

// The queue of this thread. The first call makes it and may take a lock. Null without memory, and
// while the thread's locals are destroyed.
Queue* queue_of_this_thread() noexcept;

// A default event in this thread's queue; null if there is no room, which is counted. Fill it, then
// call publish(), which must be the next call on this thread and hands it to the writer.
Event* claim(Queue& queue) noexcept;
inline void publish(Queue& queue) noexcept {
  queue.chunk->written.store(++queue.used, std::memory_order_release);
}

// Queues a copy of an event; owns its extra, also where there is no room.
void note(const Event& event) noexcept;
// The same with these texts, of which all but the name may be empty. Throws std::bad_alloc, and has
// noted nothing then.
void note(Event event, std::string_view name, std::string_view category, std::string args);

// The kernel's number of this thread.
std::uint32_t thread_id() noexcept;

// How many events were dropped since the process began.
std::uint64_t dropped() noexcept;

// Deletes the extra of a taken event and gives its room back.
struct FreeExtra {
  void operator()(Extra* extra) const noexcept;
};
using TakenExtra = std::unique_ptr<Extra, FreeExtra>;

// Calls `take(event, tid)` for all published events, oldest first for each thread. `tid` is the
// thread that queued it; the callee owns the extra, as a TakenExtra. For the writer thread only.
using Take = void (*)(void* context, const Event& event, std::uint32_t tid);
void take_published(Take take, void* context);

}  // namespace gpuprof::trace
