// What tests say and ask. None of it counts as a call of CUPTI.
#include <cstring>

#include "world.hpp"

using namespace fakecupti;

namespace {

bool wants(int kind) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  return w.kinds.count(kind) != 0;
}

template <typename T>
void set(std::vector<std::uint8_t>& record, std::size_t offset, T value) {
  std::memcpy(record.data() + offset, &value, sizeof value);
}

}  // namespace

FAKE_EXPORT void fakecupti_reset() {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  static_cast<State&>(w) = State();
}

FAKE_EXPORT void fakecupti_fail(const char* call, Result code, int calls_before) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  w.faults[call] = {code, calls_before};
}

FAKE_EXPORT std::uint64_t fakecupti_calls(const char* call) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  return w.calls[call];
}

FAKE_EXPORT std::uint64_t fakecupti_now() { return clock_now(); }

FAKE_EXPORT void fakecupti_set(const char* what, double value) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  const std::string name = what;
  if (name == "rate") w.rate = value;
  if (name == "own_thread") w.on_own_thread = value != 0.0;
  if (name == "keeps") w.keeps = value != 0.0;
  if (name == "stuck") w.stuck = value != 0.0;
  if (name == "running") w.running = static_cast<int>(value);
  if (name == "extra") w.extra = static_cast<std::size_t>(value);
  if (name == "struct_bytes") w.struct_bytes = static_cast<std::size_t>(value);
  if (name == "thread_ids") w.thread_ids = static_cast<int>(value);
}

FAKE_EXPORT std::uint64_t fakecupti_get(const char* what) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  const std::string name = what;
  if (name == "kinds") return w.kinds.size();
  if (name == "thread_ids") return static_cast<std::uint64_t>(w.thread_ids);
  if (name == "other_records") return w.other_records;
  if (name == "dropped") return w.dropped;
  if (name == "lent") return w.active.address != nullptr ? 1 : 0;
  return 0;
}

// One record of GPU work, `times` times. `what` is kKernel, kMemcpy, kPeerCopy or kMemset.
FAKE_EXPORT void fakecupti_work(int what, const char* symbol, std::uint64_t begin,
                                std::uint64_t end, std::uint32_t stream, std::uint32_t correlation,
                                std::uint32_t graph, std::uint64_t node, std::uint64_t bytes,
                                std::uint32_t memory, std::uint64_t times) {
  if (!wants(what)) return;
  const bool kernel = what == kKernel;
  const bool peer = what == kPeerCopy;
  const std::size_t size = (kernel ? 208 : peer ? 96 : 88) + world().extra;
  std::vector<std::uint8_t> record(size);
  set(record, 0, what);
  if (!kernel) set(record, 8, bytes);
  set(record, 16, begin);
  set(record, 24, end);
  const std::size_t device = kernel ? 40 : 32;
  set(record, device, std::uint32_t{1});
  set(record, device + 4, std::uint32_t{2});
  set(record, device + 8, stream);
  set(record, kernel ? 92 : peer ? 60 : 44, correlation);
  if (kernel) set(record, 104, symbol);
  set(record, kernel ? 144 : peer ? 72 : 64, node);
  set(record, kernel ? 156 : peer ? 80 : 72, graph);
  if (what == kMemset) set(record, 50, static_cast<std::uint16_t>(memory));
  if (what == kMemcpy || peer) {
    set(record, 4, static_cast<std::uint8_t>(memory >> 16U));
    set(record, 5, static_cast<std::uint8_t>(memory >> 8U));
    set(record, 6, static_cast<std::uint8_t>(memory));
  }
  for (std::uint64_t i = 0; i < times; ++i) put(record.data(), size, size);
}

// A call of CUDA: domain 1 is the driver, 2 the runtime.
FAKE_EXPORT void fakecupti_call(int domain, std::uint32_t id, std::uint64_t begin,
                                std::uint64_t end, std::uint32_t thread,
                                std::uint32_t correlation) {
  const int kind = domain == 1 ? kDriver : kRuntime;
  if (!wants(kind)) return;
  std::vector<std::uint8_t> record(40);
  set(record, 0, kind);
  set(record, 4, id);
  set(record, 8, begin);
  set(record, 16, end);
  set(record, 28, thread);
  set(record, 32, correlation);
  put(record.data(), record.size(), record.size());
}

// A record as it is given; the next one lies `step` bytes behind its start.
FAKE_EXPORT void fakecupti_raw(const std::uint8_t* record, std::size_t bytes, std::size_t step) {
  put(record, bytes, step);
}

// Gives all buffers back, as CUPTI may at any time.
FAKE_EXPORT void fakecupti_flush() { flush(true); }

// Another tool of the process registers its callbacks and enables kernels, or disables them.
FAKE_EXPORT void fakecupti_other_tool(int on) {
  if (on != 0) {
    World& w = world();
    const std::lock_guard lock(w.mutex);
    w.requested = &other_requested;
    w.completed = &other_completed;
    w.kinds.insert(kKernel);
  } else {
    flush(true);
    World& w = world();
    const std::lock_guard lock(w.mutex);
    w.kinds.erase(kKernel);
  }
}
