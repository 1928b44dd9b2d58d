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

LaunchEvent::LaunchEvent(timing::EventClock& of)
    : clock(of), generation(driver::fork_generation()) {
  const driver::Table& table = driver::ready();
  const driver::CurrentContext current(table, clock.context());
  const CUresult status = table.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  if (status != CUDA_SUCCESS) {
    const driver::Error error = driver::error_of(status, "cuEventCreate");
    if (const auto access = clock.try_access(); access && event != nullptr) {
      access->destroy(event);
    }
    throw error;
  }
  clock.hold();
}

LaunchEvent::~LaunchEvent() {
  if (generation != driver::fork_generation()) return;
  if (const auto access = clock.try_access()) {
    const driver::RelaxedCapture relaxed(*driver::loaded_or_null());
    access->destroy(event);
  }
  clock.let_go();
}

namespace deferred_release {
namespace {

// A graph to close, and the payload to release with it.
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
const bool deferred_release_fork_hook = (waiting(), true);  // a child may not make it

// In a forked child, the parent's events and payloads must not be touched.
bool is_of_this_process(const Entry& entry) noexcept {
  return entry.completed->generation == driver::fork_generation();
}

// With the driver usable.
bool is_complete(const Entry& entry) noexcept {
  if (entry.never_launched) return true;
  const auto access = entry.completed->clock.try_access();
  if (!access) return true;
  if (entry.record_failed) return false;
  return access->query(entry.completed->event) == CUDA_SUCCESS;
}

void leak(Unclosed& one) noexcept {
  [[maybe_unused]] const CapturedGraph* leaked = one.graph.release();
}

void keep(Unclosed one) noexcept {
  auto& all = waiting();
  try {
    const std::lock_guard lock(all.mutex);
    all.unclosed.push_back(std::move(one));
    all.any_unclosed.store(true, std::memory_order_release);
  } catch (...) {
    leak(one);
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
      leak(one);  // it is the parent's
      continue;
    }
    if (!one.graph->close(false)) {
      keep(std::move(one));
      continue;
    }
    one.graph.reset();
    if (one.payload.what != nullptr) one.payload.release(one.payload.what);
  }
}

void wait_for(Entry&& entry) noexcept {
  try {
    auto& all = waiting();
    const std::lock_guard lock(all.mutex);
    all.entries.push_back(std::move(entry));
    all.any.store(true, std::memory_order_release);
  } catch (...) {  // out of memory: the payload leaks
  }
}

// Releases the entries whose launches have completed.
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
    if (is_complete(entry)) {
      entry.completed.reset();
      entry.payload.release(entry.payload.what);
      continue;
    }
    wait_for(std::move(entry));
  }
}

}  // namespace

void add(Entry entry) noexcept {
  if (!is_of_this_process(entry)) return;
  wait_for(std::move(entry));
  release_entries();  // closes nothing: the caller is closing a graph
}

}  // namespace deferred_release

void close_later(std::unique_ptr<CapturedGraph> graph, const Payload& payload) noexcept {
  deferred_release::keep({std::move(graph), payload, driver::fork_generation()});
}

void release_finished() noexcept {
  deferred_release::close_unclosed();
  deferred_release::release_entries();
}

}  // namespace gpuprof::graphs
