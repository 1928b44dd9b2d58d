#include <atomic>
#include <iterator>
#include <mutex>
#include <unordered_map>

#include "driver/process.hpp"
#include "timing/cuda_contexts.hpp"
#include "timing/slow_streams.hpp"

namespace gpuprof::timing::device {
namespace {

constexpr HostNanoseconds kSlowRecord = 50'000;
constexpr HostNanoseconds kSlowFor = 1'000'000'000;

// Streams on which the last record waited for room in the queue, and when. Unused ones are
// forgotten: they may be destroyed, and each record costs more while there is any.
struct SlowStreams {
  driver::ForkMutex mutex;
  std::unordered_map<std::uintptr_t, HostNanoseconds> streams;  // by queue_of()
  HostNanoseconds next_look = 0;

  void forget_unused(HostNanoseconds now) {
    if (now < next_look) return;
    next_look = now + kSlowFor;
    for (auto it = streams.begin(); it != streams.end();) {
      it = it->second + kSlowFor <= now ? streams.erase(it) : std::next(it);
    }
  }
};

SlowStreams& slow_streams() {
  static SlowStreams& storage = *new SlowStreams;
  return storage;
}
const bool slow_streams_fork_hook = (slow_streams(), true);  // a child may not make it

}  // namespace

void note_queue_time(std::uintptr_t stream, HostNanoseconds took) noexcept {
  auto& slow = slow_streams();
  const bool is_now = took > kSlowRecord;
  if (!is_now && !any_slow.load(std::memory_order_relaxed)) return;
  try {
    const std::uintptr_t queue = contexts::queue_of(stream);
    const HostNanoseconds now = host_now();
    const std::lock_guard lock(slow.mutex);
    slow.forget_unused(now);
    if (is_now) {
      slow.streams[queue] = now;
    } else {
      slow.streams.erase(queue);
    }
    any_slow.store(!slow.streams.empty(), std::memory_order_relaxed);
  } catch (...) {  // out of memory: the stream stays as it was
  }
}

bool is_one_of_the_slow(std::uintptr_t stream) noexcept {
  auto& slow = slow_streams();
  const std::lock_guard lock(slow.mutex);
  return slow.streams.count(contexts::queue_of(stream)) != 0;
}

}  // namespace gpuprof::timing::device
