// The fake's clock, its buffers, and the tool that takes them away.
#include <time.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "world.hpp"

namespace fakecupti {
namespace {

constexpr std::size_t kOtherBytes = 4096;

void give_back(const Buffer& buffer) {
  World& w = world();
  Completed completed = nullptr;
  {
    const std::lock_guard lock(w.mutex);
    completed = w.completed;
    if (buffer.address != nullptr) w.starts[buffer.address] = buffer.starts;
  }
  if (buffer.address == nullptr) return;
  const auto call = [&] { completed(nullptr, 0, buffer.address, buffer.bytes, buffer.used); };
  if (w.on_own_thread) {
    std::thread(call).join();
  } else {
    call();
  }
}

void give_back_active() {
  Buffer buffer;
  {
    const std::lock_guard lock(world().mutex);
    std::swap(buffer, world().active);
  }
  give_back(buffer);
}

// The active buffer is full.
void turn_over() {
  World& w = world();
  if (!w.keeps) return give_back_active();
  const std::lock_guard lock(w.mutex);
  w.kept.push_back(std::exchange(w.active, Buffer()));
}

}  // namespace

World& world() {
  static World& storage = *new World;
  return storage;
}

std::uint64_t clock_now() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  World& w = world();
  const auto ns = static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  if (w.rate == 1.0) return static_cast<std::uint64_t>(ns);
  // As a counter of ticks, which starts somewhere else.
  return static_cast<std::uint64_t>(static_cast<double>(ns % 1'000'000'000'000'000) * w.rate);
}

void flush(bool forced) {
  World& w = world();
  const std::lock_guard writing(w.writing);
  std::vector<Buffer> kept;
  {
    const std::lock_guard lock(w.mutex);
    if (w.stuck) return;
    if (!forced && w.running > 0) {
      --w.running;
      return;
    }
    kept.swap(w.kept);
  }
  for (const Buffer& buffer : kept) give_back(buffer);
  give_back_active();
}

void put(const void* record, std::size_t bytes, std::size_t step) {
  World& w = world();
  const std::lock_guard writing(w.writing);
  if (w.active.address != nullptr && w.active.used + step > w.active.bytes) turn_over();
  if (w.active.address == nullptr) {
    Requested requested = nullptr;
    {
      const std::lock_guard lock(w.mutex);
      requested = w.requested;
    }
    std::size_t most = 0;
    Buffer fresh;
    if (requested != nullptr) requested(&fresh.address, &fresh.bytes, &most);
    const std::lock_guard lock(w.mutex);
    if (fresh.address == nullptr || fresh.bytes < step) {
      ++w.dropped;
      return;
    }
    w.active = fresh;
  }
  const std::lock_guard lock(w.mutex);
  w.active.starts.push_back(w.active.used);
  std::memcpy(w.active.address + w.active.used, record, bytes);
  w.active.used += step;
}

void other_requested(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(64, kOtherBytes));
  *bytes = kOtherBytes;
  *most = 0;
  w.others.insert(*buffer);
}

void other_completed(void* /*context*/, std::uint32_t /*stream*/, std::uint8_t* buffer,
                     std::size_t /*bytes*/, std::size_t /*valid*/) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  if (w.others.erase(buffer) == 0) return;  // "called with unknown buffer"
  w.other_records += w.starts[buffer].size();
  w.starts.erase(buffer);
  std::free(buffer);
}

}  // namespace fakecupti
