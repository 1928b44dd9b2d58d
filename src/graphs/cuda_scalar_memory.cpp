#include "graphs/cuda_scalar_memory.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

#include "driver/cuda_thread_state.hpp"
#include "driver/process.hpp"
#include "graphs/device_scalar.hpp"

namespace gpuprof::graphs {

using driver::check;
using driver::Table;
using timing::EventClock;

namespace {

constexpr std::size_t kSlotBytes = 256;  // the alignment that DLPack asks for
constexpr std::size_t kSlots = 512;

struct Slab {
  EventClock* clock = nullptr;
  CUdeviceptr base = 0;
  std::size_t used = 0;  // under the lock
};
using SlabRef = std::shared_ptr<Slab>;

struct Memory {
  driver::ForkMutex mutex;
  std::vector<SlabRef> slabs;
};

Memory& memory() { return driver::immortal<Memory>(); }

// Held by the registry alone, so no scalar can begin to use it.
bool is_idle(const SlabRef& slab) noexcept { return slab.use_count() == 1; }

// With the lock held. Moves the chosen slabs from `from` to `to`.
template <typename Choice>
void move_out(std::vector<SlabRef>& from, std::vector<SlabRef>& to, Choice&& chosen) {
  const auto first =
      std::partition(from.begin(), from.end(), [&](const SlabRef& slab) { return !chosen(slab); });
  to.insert(to.end(), first, from.end());
  from.erase(first, from.end());
}

// Unless the context or the driver is gone.
void free_all(const std::vector<SlabRef>& slabs) noexcept {
  for (const SlabRef& slab : slabs) {
    EventClock& clock = *slab->clock;
    if (clock.check_alive()) {
      try {
        const Table& table = driver::ready();
        const driver::CurrentContext current(table, clock.context());
        const driver::RelaxedCapture relaxed(table);
        table.cuMemFree(slab->base);
      } catch (...) {  // the context is gone, and what was made in it
      }
    }
    clock.let_go();
  }
}

// With the lock held, or before others know the slab.
std::shared_ptr<void> take_from(const SlabRef& slab) {
  return {slab, reinterpret_cast<void*>(slab->base + kSlotBytes * slab->used++)};
}

// A free slot of a slab, else null and the slabs that can be freed.
std::shared_ptr<void> take_left(const EventClock& clock, std::vector<SlabRef>& finished) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  for (const SlabRef& slab : m.slabs) {
    const EventClock& own = *slab->clock;  // a context may have had several
    const bool is_same_context = own.context() == clock.context() && own.id() == clock.id();
    if (slab->used == kSlots || !is_same_context) continue;
    return take_from(slab);
  }
  move_out(m.slabs, finished, [](const SlabRef& slab) {
    return slab->clock->lost() || (slab->used == kSlots && is_idle(slab));
  });
  return nullptr;
}

SlabRef make_slab(const Table& table, EventClock& clock) {
  auto slab = std::make_shared<Slab>();
  slab->clock = &clock;
  const driver::CurrentContext current(table, clock.context());
  const driver::RelaxedCapture relaxed(table);
  check(table.cuMemAlloc(&slab->base, kSlotBytes * kSlots), "cuMemAlloc");
  clock.hold();
  return slab;
}

}  // namespace

std::shared_ptr<void> take_slot(const Table& table, EventClock& clock) {
  std::vector<SlabRef> finished;
  std::shared_ptr<void> slot = take_left(clock, finished);
  free_all(finished);
  if (slot) return slot;
  const SlabRef slab = make_slab(table, clock);
  slot = take_from(slab);
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  m.slabs.push_back(slab);
  return slot;
}

void release_idle_scalars() noexcept {
  Memory& m = memory();
  std::vector<SlabRef> slabs;
  try {
    const std::lock_guard lock(m.mutex);
    move_out(m.slabs, slabs, is_idle);
  } catch (...) {  // out of memory: nothing is released
    return;
  }
  free_all(slabs);
}

}  // namespace gpuprof::graphs
