#include "graphs/cuda_deferred_release.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "driver/cuda_thread_state.hpp"
#include "driver/process.hpp"

namespace gpuprof::graphs {
namespace afterlife {
namespace {

// A graph that is to be closed, and what goes with it.
struct Unclosed {
  std::unique_ptr<CapturedGraph> graph;
  Payload payload;
  std::uint32_t generation;
};

struct Waiting {
  driver::ForkMutex mutex;
  std::vector<Entry> entries;
  std::vector<Unclosed> unclosed;
  std::atomic<bool> any{false};
  std::atomic<bool> any_unclosed{false};
};

Waiting& waiting() {
  static Waiting& storage = *new Waiting;
  return storage;
}

// A parent's entry in a forked child: its event must not be touched, its payload is the parent's.
bool is_of_this_process(const Entry& entry) noexcept {
  return entry.over->generation == driver::fork_generation();
}

// With the driver usable.
bool is_over(const Entry& entry) noexcept {
  if (entry.never_launched) return true;
  const auto access = entry.over->clock.try_access();
  if (!access) return true;
  if (entry.lost_track) return false;
  return access->query(entry.over->event) == CUDA_SUCCESS;
}

void keep_for_good(Unclosed& one) noexcept {
  const CapturedGraph* kept = one.graph.release();
  static_cast<void>(kept);
}

void keep(Unclosed one) noexcept {
  auto& all = waiting();
  try {
    const std::lock_guard lock(all.mutex);
    all.unclosed.push_back(std::move(one));
    all.any_unclosed.store(true, std::memory_order_release);
  } catch (...) {
    keep_for_good(one);  // for lack of memory
  }
}

void close_unclosed() noexcept {
  auto& all = waiting();
  if (!all.any_unclosed.load(std::memory_order_acquire)) return;
  std::vector<Unclosed> unclosed;
  {
    const std::lock_guard lock(all.mutex);
    unclosed.swap(all.unclosed);
    all.any_unclosed.store(false, std::memory_order_relaxed);
  }
  for (Unclosed& one : unclosed) {
    if (one.generation != driver::fork_generation()) {
      keep_for_good(one);  // the parent's
      continue;
    }
    if (!one.graph->try_close()) {
      keep(std::move(one));
      continue;
    }
    one.graph.reset();
    if (one.payload.what != nullptr) one.payload.release(one.payload.what);
  }
}

// Releases what the entries keep, where their launches are over.
void release_entries() noexcept {
  auto& all = waiting();
  if (!all.any.load(std::memory_order_acquire)) return;
  const driver::Table* table = driver::loaded_or_null();
  if (table == nullptr || driver::blocked.load(std::memory_order_relaxed) != 0) return;
  std::vector<Entry> entries;
  {
    const std::lock_guard lock(all.mutex);
    entries.swap(all.entries);
    all.any.store(false, std::memory_order_relaxed);
  }
  const driver::RelaxedCapture relaxed(*table);
  for (Entry& entry : entries) {
    if (!is_of_this_process(entry)) continue;
    if (is_over(entry)) {
      entry.over.reset();
      entry.payload.release(entry.payload.what);
      continue;
    }
    try {
      const std::lock_guard lock(all.mutex);
      all.entries.push_back(std::move(entry));
      all.any.store(true, std::memory_order_release);
    } catch (...) {  // out of memory: the payload is kept for good
    }
  }
}

}  // namespace

void add(Entry entry) noexcept {
  if (!is_of_this_process(entry)) return;
  try {
    auto& all = waiting();
    const std::lock_guard lock(all.mutex);
    all.entries.push_back(std::move(entry));
    all.any.store(true, std::memory_order_release);
  } catch (...) {
    return;
  }
  release_entries();  // and closes nothing: this comes from a graph that is being closed
}

}  // namespace afterlife

void close_later(std::unique_ptr<CapturedGraph> graph, const Payload& payload) noexcept {
  afterlife::keep({std::move(graph), payload, driver::fork_generation()});
}

void release_finished() noexcept {
  afterlife::close_unclosed();
  afterlife::release_entries();
}

}  // namespace gpuprof::graphs
