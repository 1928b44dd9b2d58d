#include "graphs/cuda_deferred_release.hpp"

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "driver/cuda_thread_state.hpp"
#include "driver/process.hpp"

namespace gpuprof::graphs {

LaunchEvent::LaunchEvent(timing::EventClock& of)
    : event(of.make_event(CU_EVENT_DISABLE_TIMING)),
      clock(of),
      generation(driver::fork_generation()) {
  clock.hold();
}

LaunchEvent::~LaunchEvent() {
  if (generation != driver::fork_generation()) return;
  clock.destroy_later(event);
  clock.let_go();
}

namespace deferred_release {
namespace {

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
  if (entry.never_launched) return true;
  const auto access = entry.completed->clock.try_access();
  if (!access) return true;
  if (entry.record_failed) return false;
  return access->query(entry.completed->event) == CUDA_SUCCESS;
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
  const driver::Table* table = driver::loaded_or_null();
  std::optional<driver::RelaxedCapture> relaxed;  // none: the driver is not usable
  if (table != nullptr && driver::blocked.load(std::memory_order_relaxed) == 0) {
    relaxed.emplace(*table);
  }
  for (Entry& entry : entries) {
    if (entry.generation != driver::fork_generation()) {
      leak(entry);  // in a forked child, the parent's must not be touched
      continue;
    }
    const bool is_over =
        entry.unclosed ? closes && entry.unclosed->close(false) : relaxed && is_complete(entry);
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

void add(Entry entry) noexcept {
  wait_for(std::move(entry));
  release_entries(/*closes=*/false);  // the caller is closing a graph
}

}  // namespace deferred_release

void close_later(std::unique_ptr<CapturedGraph> graph, Payload payload) noexcept {
  deferred_release::wait_for({std::move(payload), nullptr, false, true, std::move(graph)});
}

void release_deferred() noexcept { deferred_release::release_entries(/*closes=*/true); }

}  // namespace gpuprof::graphs
