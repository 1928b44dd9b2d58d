// What closed graphs keep until their last launch is over, and graphs that wait to be closed.
//
// Launches of one executable graph run one after the other on whatever streams, so the event after
// the last one says that all are done. A CUDA user object would also signal completion, but adds
// 2 us to every launch (H200) and serialises it with the next.
#include <mutex>
#include <utility>
#include <vector>

#include "driver/cuda_thread_state.hpp"
#include "driver/process.hpp"
#include "graphs/captured_graph.hpp"
#include "timing/cuda_event_clock.hpp"

namespace gpuprof::graphs {
namespace {

struct Entry {
  Payload payload;
  std::shared_ptr<const timing::OwnEvent> completed;  // null: nothing to wait for
  bool record_failed;  // the event says nothing: kept until the context is gone
  std::unique_ptr<CapturedGraph> unclosed;  // to be closed and destroyed first
  std::uint32_t generation = driver::fork_generation();
};

struct Waiting {
  driver::ForkMutex mutex;
  std::vector<Entry> entries;
};

Waiting& waiting() { return driver::immortal<Waiting>(); }

void leak(Entry& entry) noexcept {
  [[maybe_unused]] const CapturedGraph* const graph = entry.unclosed.release();
  [[maybe_unused]] const void* const payload = entry.payload.release();
}

void wait_for(Entry&& entry) noexcept {
  try {
    auto& all = waiting();
    const std::lock_guard lock(all.mutex);
    all.entries.push_back(std::move(entry));
    any_deferred.store(true, std::memory_order_release);
  } catch (...) {  // out of memory: the payload leaks, too
    leak(entry);
  }
}

// With the driver usable.
bool is_complete(const Entry& entry) noexcept {
  if (entry.completed == nullptr) return true;
  const auto access = entry.completed->clock().try_access();
  if (!access) return true;
  if (entry.record_failed) return false;
  return access->query(entry.completed->handle()) == CUDA_SUCCESS;
}

// Releases what can be released now. `closes`: also closes graphs.
void release_entries(bool closes) noexcept {
  auto& all = waiting();
  std::vector<Entry> entries;
  {
    const std::lock_guard lock(all.mutex);
    entries.swap(all.entries);
    any_deferred.store(false, std::memory_order_relaxed);
  }
  const driver::RelaxedCapture relaxed;
  const bool is_usable = driver::usable_or_null() != nullptr;
  for (Entry& entry : entries) {
    if (entry.generation != driver::fork_generation()) {
      leak(entry);  // in a forked child, the parent's must not be touched
      continue;
    }
    const bool is_over =
        entry.unclosed ? closes && entry.unclosed->close(false) : is_usable && is_complete(entry);
    if (!is_over) {
      wait_for(std::move(entry));
      continue;
    }
    entry.unclosed.reset();
    entry.completed.reset();
    entry.payload.reset();
  }
}

}  // namespace

void release_later(Payload payload, std::shared_ptr<const timing::OwnEvent> completed,
                   bool record_failed) noexcept {
  wait_for({std::move(payload), std::move(completed), record_failed, nullptr});
  release_entries(/*closes=*/false);  // the caller is closing a graph
}

void close_later(std::unique_ptr<CapturedGraph> graph, Payload payload) noexcept {
  wait_for({std::move(payload), nullptr, false, std::move(graph)});
}

void release_deferred() noexcept { release_entries(/*closes=*/true); }

}  // namespace gpuprof::graphs
