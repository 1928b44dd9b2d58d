#include "trace/ring.hpp"

#include <algorithm>

#include "trace/sink.hpp"

namespace gpuprof::trace {
namespace {

constexpr std::size_t kMostChunkBytes = std::size_t{256} << 10U;
constexpr std::size_t kChunks = 16;     // at least, so that little is dropped at once
constexpr std::size_t kAllocator = 32;  // what its blocks take besides

std::size_t size_of(const Event& event) noexcept {
  if (event.extra == nullptr) return sizeof(Event);
  const Extra& extra = *event.extra;
  const std::size_t label = extra.own ? sizeof(Label) + extra.own->json.capacity() : 0;
  return sizeof(Event) + sizeof(Extra) + kAllocator + extra.args.size() + label;
}

}  // namespace

Ring::Chunk::~Chunk() {
  for (const Event& event : events) delete event.extra;
}

Ring::Ring(std::size_t bytes, HostNanoseconds keep, HostNanoseconds now) noexcept
    : limit_(bytes),
      chunk_bytes_(std::min(kMostChunkBytes, bytes / kChunks)),
      keep_(keep),
      since_(now) {}

void Ring::add(const Event& event, std::uint32_t noted_by, HostNanoseconds now) {
  if (limit_ == 0) return;
  const std::size_t size = size_of(event);
  if (size > limit_ / 2) {  // it would drive out all others
    ++too_large_;
    return;
  }
  auto extra = event.extra != nullptr ? std::make_unique<Extra>(*event.extra) : nullptr;
  Chunk& chunk = chunk_with_room(size, now);
  Event& copy = chunk.events.emplace_back(event);
  if (copy.tid == 0) copy.tid = noted_by;
  copy.extra = extra.release();
  chunk.bytes += size;
  chunk.last = now;
  bytes_ += size;
  ++events_;
}

Ring::Chunk& Ring::chunk_with_room(std::size_t size, HostNanoseconds now) {
  const bool has_room =
      !chunks_.empty() && !is_shared_ && chunks_.back()->bytes + size <= chunk_bytes_;
  if (!has_room) {
    chunks_.push_back(std::make_shared<Chunk>());
    chunks_.back()->last = now;
    is_shared_ = false;
  }
  while (bytes_ + size > limit_) drop_oldest();  // never the newest, which is less than half of it
  return *chunks_.back();
}

void Ring::drop_oldest() {
  const Chunk& oldest = *chunks_.front();
  bytes_ -= oldest.bytes;
  events_ -= oldest.events.size();
  since_ = oldest.last;
  chunks_.pop_front();
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

void Ring::read(const Chunk& chunk, HostNanoseconds from, EventSink& sink,
                HostNanoseconds gpu_error) {
  for (const Event& event : chunk.events) {
    if (event.kind == Kind::kGpu) {
      const auto duration = static_cast<HostNanoseconds>(event.extra->gpu.duration_ns);
      if (std::max(event.end, event.begin + duration) < from) continue;
      sink.add_gpu(event, event.tid, event.begin, gpu_error);
    } else if (event.end >= from) {
      sink.add(event, event.tid);
    }
  }
}

}  // namespace gpuprof::trace
