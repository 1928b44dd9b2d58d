// Where threads leave events for the writer.
//
// Each thread has a queue of chunks of its own: it writes, the writer thread reads, and neither
// takes a lock but to get the next chunk (once in Chunk::kEvents events). All chunks together are
// bounded; with none left, an event is dropped and counted. The thread that forked finds its queue
// empty in the child.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "trace/event.hpp"

namespace gpuprof::trace {

// Whether some trace takes what the program does.
inline std::atomic<bool> recording{false};
inline bool is_recording() noexcept { return recording.load(std::memory_order_relaxed); }

struct Chunk {
  static constexpr std::uint32_t kEvents = 1023;
  std::atomic<std::uint32_t> written{0};
  std::atomic<Chunk*> next{nullptr};
  std::array<Event, kEvents> events;
};
inline constexpr std::size_t kMaxChunks = 512;  // 32 MiB

// One thread's queue, from the thread's side.
struct Queue {
  Chunk* chunk = nullptr;
  std::uint32_t used = 0;  // of `chunk`
  std::uint32_t tid = 0;   // the kernel's number of the thread
};

// The queue of this thread. Made at the first use, which reads the thread's name and may take a
// lock; null for lack of memory.
Queue* queue_of_this_thread() noexcept;

// Room for one event in the thread's queue, default values in it; null if there is none, which is
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

}  // namespace gpuprof::trace
