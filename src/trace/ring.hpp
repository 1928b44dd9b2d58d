// The newest events, in bounded memory.
//
// Events are copied into chunks with their arguments; a name that one owns is shared. What has no
// room, or is too old, goes a chunk at a time, the oldest first. A snapshot shares the chunks, so
// that it costs no copy: while it is read, the ring may hold as much again. Not thread safe. Times
// are of the host's monotonic clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "trace/event.hpp"

namespace gpuprof::trace {

class EventSink;

class Ring {
 public:
  struct Chunk {
    Chunk() = default;
    Chunk(const Chunk&) = delete;
    Chunk& operator=(const Chunk&) = delete;
    ~Chunk();

    std::deque<Event> events;  // which own their extras
    std::size_t bytes = 0;     // with these
    HostNanoseconds last = 0;  // when the newest event arrived
  };
  using Snapshot = std::deque<std::shared_ptr<const Chunk>>;  // oldest first

  // Of at most `bytes`, or none for a ring that keeps nothing; with nothing that arrived more than
  // `keep` ago.
  Ring(std::size_t bytes, HostNanoseconds keep, HostNanoseconds now) noexcept;

  // Adds an event that arrived at `now`, not earlier than those before. It stays the caller's. A
  // GPU span has `begin` on the host's clock. Throws std::bad_alloc.
  void add(const Event& event, std::uint32_t noted_by, HostNanoseconds now);
  // Drops what is too old.
  void trim(HostNanoseconds now);
  void clear(HostNanoseconds now) noexcept;

  [[nodiscard]] Snapshot snapshot();

  [[nodiscard]] std::uint64_t events() const noexcept { return events_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  // Everything that arrived since then is there.
  [[nodiscard]] HostNanoseconds since() const noexcept { return since_; }
  // Events that were too large for it.
  [[nodiscard]] std::uint64_t too_large() const noexcept { return too_large_; }

  // Adds to `sink` the events of a chunk that ended at `from` or later, as if they had just come.
  // No GPU span is off by more than `gpu_error`.
  static void read(const Chunk& chunk, HostNanoseconds from, EventSink& sink,
                   HostNanoseconds gpu_error);

 private:
  Chunk& chunk_with_room(std::size_t size, HostNanoseconds now);
  void drop_oldest();

  const std::size_t limit_;
  const std::size_t chunk_bytes_;
  const HostNanoseconds keep_;
  std::deque<std::shared_ptr<Chunk>> chunks_;
  bool is_shared_ = false;  // the newest chunk belongs to a snapshot, too
  std::size_t bytes_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t too_large_ = 0;
  HostNanoseconds since_;
};

}  // namespace gpuprof::trace
