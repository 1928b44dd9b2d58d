#include "trace/ring.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "trace/sink.hpp"

namespace gpuprof::trace {
namespace {

constexpr std::size_t kMostChunkBytes = std::size_t{256} << 10U;
constexpr std::size_t kChunks = 16;  // at least, so that little is dropped at once

// What follows an event that has an extra. Its `extra` only says so: it is not followed.
struct Tail {
  std::uint32_t args = 0;  // bytes, which follow
  std::uint32_t name = 0;  // and then these, where the name is the event's own
  Placed placed;
  GpuSpan gpu;
};
static_assert(std::is_trivially_copyable_v<Event> && std::is_trivially_copyable_v<Tail>);
static_assert(sizeof(Event) % alignof(Event) == 0 && sizeof(Tail) % alignof(Event) == 0);

Tail tail_of(const Event& event, const Placed& placed) noexcept {
  const Extra& extra = *event.extra;
  Tail tail;
  tail.args = static_cast<std::uint32_t>(extra.args.size());
  tail.name = extra.own ? static_cast<std::uint32_t>(extra.own->json.size()) : 0;
  tail.placed = placed;
  tail.gpu = extra.gpu;
  return tail;
}

std::size_t size_of_tail(const Tail& tail) noexcept {
  const std::size_t texts = std::size_t{tail.args} + tail.name;
  return sizeof(Tail) + (texts + alignof(Event) - 1) / alignof(Event) * alignof(Event);
}

// Reads the events of a chunk one after another.
class Reader {
 public:
  explicit Reader(const Ring::Chunk& chunk) noexcept
      : at_(chunk.memory.get()), end_(at_ + chunk.used) {}

  // False at the end. The event's extra is the reader's, until the next call.
  bool next() {
    if (at_ == end_) return false;
    std::memcpy(static_cast<void*>(&event), at_, sizeof(Event));
    at_ += sizeof(Event);
    placed = {};
    if (event.extra != nullptr) read_tail();
    return true;
  }

  Event event;
  Placed placed;

 private:
  void read_tail() {
    Tail tail;
    std::memcpy(static_cast<void*>(&tail), at_, sizeof(Tail));
    const auto* text = reinterpret_cast<const char*>(at_ + sizeof(Tail));
    extra_.args.assign(text, tail.args);
    extra_.gpu = tail.gpu;
    extra_.own.reset();
    if (tail.name != 0) {
      extra_.own =
          std::make_unique<const Label>(Label{std::string(text + tail.args, tail.name), {}});
      event.name = extra_.own.get();
    }
    placed = tail.placed;
    event.extra = &extra_;
    at_ += size_of_tail(tail);
  }

  const unsigned char* at_;
  const unsigned char* end_;
  Extra extra_;
};

}  // namespace

Ring::Ring(std::size_t bytes, HostNanoseconds keep, HostNanoseconds now) noexcept
    : limit_(bytes),
      chunk_bytes_(std::min(kMostChunkBytes, bytes / kChunks)),
      keep_(keep),
      since_(now) {}

void Ring::add(const Event& event, std::uint32_t noted_by, const Placed& placed,
               HostNanoseconds now) {
  if (limit_ == 0) return;
  Tail tail;
  std::size_t size = sizeof(Event);
  if (event.extra != nullptr) {
    tail = tail_of(event, placed);
    size += size_of_tail(tail);
  }
  Chunk* chunk = chunk_with_room(size);
  if (chunk == nullptr) return;
  unsigned char* place = chunk->memory.get() + chunk->used;
  Event copy = event;
  if (copy.tid == 0) copy.tid = noted_by;
  std::memcpy(place, &copy, sizeof(Event));
  if (event.extra != nullptr) {
    place += sizeof(Event);
    std::memcpy(place, &tail, sizeof(Tail));
    place += sizeof(Tail);
    std::memcpy(place, event.extra->args.data(), tail.args);
    if (tail.name != 0) std::memcpy(place + tail.args, event.extra->own->json.data(), tail.name);
  }
  chunk->used += size;
  ++chunk->events;
  ++events_;
  chunk->last = now;
}

Ring::Chunk* Ring::chunk_with_room(std::size_t size) {
  if (!chunks_.empty() && !is_shared_) {
    Chunk& newest = *chunks_.back();
    if (newest.capacity - newest.used >= size) return &newest;
  }
  const std::size_t bytes = std::max(chunk_bytes_, size);
  if (bytes > limit_ / 2) {  // it would drive out all others
    ++too_large_;
    return nullptr;
  }
  std::shared_ptr<Chunk> chunk;
  while (!chunks_.empty() && bytes_ + bytes > limit_) chunk = drop_oldest();
  if (chunk && chunk.use_count() == 1 && chunk->capacity == bytes) {
    chunk->clear();  // no snapshot has it: its memory serves again
  } else {
    chunk = std::make_shared<Chunk>(bytes);
  }
  chunks_.push_back(std::move(chunk));
  is_shared_ = false;
  bytes_ += bytes;
  return chunks_.back().get();
}

std::shared_ptr<Ring::Chunk> Ring::drop_oldest() {
  std::shared_ptr<Chunk> oldest = chunks_.front();
  bytes_ -= oldest->capacity;
  events_ -= oldest->events;
  since_ = oldest->last;
  chunks_.pop_front();
  return oldest;
}

void Ring::trim(HostNanoseconds now) {
  while (!chunks_.empty() && chunks_.front()->last < now - keep_) drop_oldest();
}

void Ring::clear(HostNanoseconds now) noexcept {
  chunks_.clear();
  bytes_ = 0;
  events_ = 0;
  since_ = now;
}

Ring::Snapshot Ring::snapshot() {
  is_shared_ = true;
  return {chunks_.begin(), chunks_.end()};
}

void Ring::read(const Chunk& chunk, HostNanoseconds from, EventSink& sink) {
  Reader reader(chunk);
  while (reader.next()) {
    const Event& event = reader.event;
    if (event.kind == Kind::kGpu) {
      const auto duration = static_cast<HostNanoseconds>(event.extra->gpu.duration_ns);
      if (std::max(event.end, reader.placed.begin + duration) < from) continue;
      sink.add_gpu(event, event.tid, reader.placed.begin, reader.placed.error);
    } else if (event.end >= from) {
      sink.add(event, event.tid);
    }
  }
}

}  // namespace gpuprof::trace
