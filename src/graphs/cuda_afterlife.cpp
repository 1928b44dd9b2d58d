#include "graphs/cuda_afterlife.hpp"

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "driver/cuda_scopes.hpp"
#include "driver/process.hpp"

namespace gpuprof::graphs {
namespace afterlife {
namespace {

struct Waiting {
  driver::ForkMutex mutex;
  std::vector<Entry> entries;
  std::atomic<bool> any{false};
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
bool is_over(const driver::Table& table, const Entry& entry) noexcept {
  if (entry.never_launched || !entry.over->clock.check_alive()) return true;
  if (entry.lost_track) return false;
  return table.cuEventQuery(entry.over->event) == CUDA_SUCCESS;
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
  release_finished();
}

}  // namespace afterlife

void release_finished() noexcept {
  auto& all = afterlife::waiting();
  if (!all.any.load(std::memory_order_acquire)) return;
  const driver::Table* table = driver::loaded_or_null();
  if (table == nullptr || driver::blocked.load(std::memory_order_relaxed) != 0) return;
  std::vector<afterlife::Entry> entries;
  {
    const std::lock_guard lock(all.mutex);
    entries.swap(all.entries);
    all.any.store(false, std::memory_order_relaxed);
  }
  const driver::RelaxedCapture relaxed(*table);
  for (afterlife::Entry& entry : entries) {
    if (!afterlife::is_of_this_process(entry)) continue;
    if (afterlife::is_over(*table, entry)) {
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

}  // namespace gpuprof::graphs
