#include "timing/cuda_contexts.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>

#include "driver/cuda_thread_state.hpp"
#include "driver/process.hpp"
#include "timing/cuda_capture.hpp"
#include "timing/device.hpp"

namespace gpuprof::timing::contexts {

using driver::check;
using driver::Table;

namespace {

struct Registry {
  driver::ForkMutex mutex;
  std::vector<EventClock*> clocks;
  // Clocks that were removed. Never destroyed: samples and other threads' caches point at them.
  std::vector<EventClock*> retired;
  // Changes when a clock is removed, which invalidates every thread's cache.
  std::atomic<std::uint64_t> version{1};

  // With the mutex held. There is room for all to retire, because a forked child may not allocate.
  void add(EventClock* clock) {
    retired.reserve(retired.size() + clocks.size() + 1);
    clocks.push_back(clock);
  }

  // With the mutex held, except in a forked child. Whether there was one.
  template <typename IsOver>
  bool retire_if(IsOver&& is_over) {
    const auto first = std::partition(clocks.begin(), clocks.end(), std::not_fn(is_over));
    if (first == clocks.end()) return false;
    retired.insert(retired.end(), first, clocks.end());
    clocks.erase(first, clocks.end());
    version.fetch_add(1, std::memory_order_release);
    return true;
  }
};

Registry& registry() { return driver::immortal<Registry>(); }

struct Cached {
  CUcontext context = nullptr;
  EventClock* clock = nullptr;
  std::uint64_t version = 0;
};
thread_local Cached cached;

// True if `context` is the device's primary one, which is then retained.
bool retain_if_primary(const Table& table, CUcontext context, CUdevice device) {
  unsigned int flags = 0;
  int active = 0;
  check(table.cuDevicePrimaryCtxGetState(device, &flags, &active), "cuDevicePrimaryCtxGetState");
  if (active == 0) return false;
  CUcontext primary = nullptr;
  check(table.cuDevicePrimaryCtxRetain(&primary, device), "cuDevicePrimaryCtxRetain");
  if (primary == context) return true;
  table.cuDevicePrimaryCtxRelease(device);
  return false;
}

// The first of the clocks that are not lost for which `matches` is true; null without one.
template <typename Matches>
EventClock* find_clock(Matches&& matches) {
  auto& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto found = std::find_if(r.clocks.begin(), r.clocks.end(), matches);
  return found != r.clocks.end() ? *found : nullptr;
}

// Two threads may both have made one: the first in the registry wins.
EventClock* enter(const Table& table, EventClock* made) {
  auto& r = registry();
  EventClock* winner = made;
  {
    const std::lock_guard lock(r.mutex);
    for (EventClock* clock : r.clocks) {
      if (clock->context() == made->context() && clock->id() == made->id()) winner = clock;
    }
    if (winner == made) r.add(made);
  }
  if (winner != made && made->retained()) table.cuDevicePrimaryCtxRelease(made->ordinal());
  if (winner != made) delete made;
  return winner;
}

EventClock* make(const Table& table, CUcontext context, unsigned long long id) {
  const driver::CurrentContext current(table, context);
  CUdevice device = 0;
  check(table.cuCtxGetDevice(&device), "cuCtxGetDevice");
  const bool retained = retain_if_primary(table, context, device);
  return enter(table, new EventClock(table, context, id, device, retained));
}

Found clock_of(const Table& table, CUcontext context) {
  std::uint64_t version = registry().version.load(std::memory_order_acquire);
  if (cached.context == context && cached.version == version) {
    if (const auto access = cached.clock->try_access()) return {cached.clock, nullptr, *access};
    forget_lost();
    version = registry().version.load(std::memory_order_acquire);  // before the look-up
  }
  unsigned long long id = 0;
  check(table.cuCtxGetId(context, &id), "cuCtxGetId");
  EventClock* clock = find_clock(
      [&](const EventClock* each) { return each->context() == context && each->id() == id; });
  if (clock == nullptr) clock = make(table, context, id);
  cached = {context, clock, version};
  return {clock, nullptr, clock->access()};
}

Found primary_clock(const Table& table, int ordinal) {
  EventClock* const known = find_clock(
      [=](const EventClock* each) { return each->retained() && each->ordinal() == ordinal; });
  if (known != nullptr) {
    if (const auto access = known->try_access()) return {known, known->context(), *access};
    forget_lost();
  }
  EventClock* clock = enter(table, make_primary(table, ordinal).release());
  return {clock, clock->context(), clock->access()};
}

// In a forked child none of the parent's handles may be used.
void forget_all_in_child() noexcept {
  registry().retire_if([](const EventClock* /*clock*/) { return true; });
}

const bool fork_hook = (registry(), driver::on_fork_child(forget_all_in_child));

}  // namespace

Found find(const Table& table, std::uintptr_t stream, int ordinal) {
  CUcontext context = nullptr;
  if (!is_default_stream(stream)) {
    check(table.cuStreamGetCtx(as_stream(stream), &context), "cuStreamGetCtx");
    return clock_of(table, context);
  }
  check(table.cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  return context != nullptr ? clock_of(table, context) : primary_clock(table, ordinal);
}

std::unique_ptr<EventClock> make_primary(const Table& table, int ordinal) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  check(table.cuDeviceGet(&device, ordinal), "cuDeviceGet");
  check(table.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  unsigned long long id = 0;
  if (const CUresult status = table.cuCtxGetId(context, &id); status != CUDA_SUCCESS) {
    table.cuDevicePrimaryCtxRelease(device);
    throw driver::error_of(status, "cuCtxGetId");
  }
  return std::make_unique<EventClock>(table, context, id, device, true);
}

// Thread numbers are odd and at least 3, so no handle equals one: handles are addresses, or
// below 3.
std::uintptr_t queue_of(std::uintptr_t stream) noexcept {
  if (stream != kPerThreadStream) return stream;
  static std::atomic<std::uintptr_t> threads{0};
  thread_local const std::uintptr_t own = threads.fetch_add(4, std::memory_order_relaxed) + 3;
  return own;
}

std::vector<EventClock*> all() {
  auto& r = registry();
  const std::lock_guard lock(r.mutex);
  return r.clocks;
}

void forget_lost() noexcept {
  auto& r = registry();
  const std::lock_guard lock(r.mutex);
  r.retire_if([](const EventClock* clock) { return clock->lost(); });
}

}  // namespace gpuprof::timing::contexts

namespace gpuprof::timing::device {

std::size_t release_idle() noexcept {
  std::size_t out = 0;
  try {
    const driver::Table* table = driver::loaded_or_null();
    for (EventClock* clock : contexts::all()) {
      const std::size_t of_clock = clock->destroy_idle();
      if (clock->lost()) continue;  // nothing to release
      out += of_clock;
      if (of_clock != 0) continue;
      clock->timeline().forget(/*for_good=*/true);
      auto& r = contexts::registry();
      {
        const std::lock_guard lock(r.mutex);
        // Another thread may have found it idle as well, and releases its context.
        if (!r.retire_if([=](const EventClock* each) { return each == clock; })) continue;
      }
      clock->destroy_dead();  // of who let go of the last one meanwhile
      if (clock->retained() && !driver::is_blocked()) {
        table->cuDevicePrimaryCtxRelease(clock->ordinal());
      }
    }
    contexts::forget_lost();
  } catch (...) {  // out of memory: nothing more is released
  }
  return out;
}

std::uint64_t stream_id(std::uintptr_t stream) {
  if (contexts::is_default_stream(stream)) return 0;
  bool capturing = false;
  try {
    const driver::Table& table = driver::ready();
    capturing = captures::is_capturing(table, stream);
    if (!capturing) return contexts::id_of(table, stream);
  } catch (const driver::Error&) {
    return 0;
  }
  driver::refuse("the stream " + std::to_string(stream) +
                 " is being captured, and the driver does not tell its number then; name it "
                 "before the capture or after");
}

}  // namespace gpuprof::timing::device
