// Who is told of scopes and ranges as they open and close, besides the statistics; and what
// switches them off, besides the switch that users have at run time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpuprof::bindings {

// What the environment decided once, when the package was imported. Written then, read ever after,
// with the interpreter lock.
struct Switches {
  bool disabled_for_good = false;  // GPUPROF_DISABLE
  bool release_gil = false;        // GPUPROF_RELEASE_GIL
};
inline Switches switches;

// A thread on which a benchmark measures shows nothing of what it does, unless it was asked to:
// neither in statistics nor in traces or tools. Other threads go on.
inline std::atomic<std::size_t> paused_threads{0};
inline thread_local std::uint32_t pauses_of_this_thread = 0;

[[nodiscard]] inline bool is_paused() noexcept {
  return paused_threads.load(std::memory_order_relaxed) != 0 && pauses_of_this_thread != 0;
}

// Pauses this thread for the life of the object.
class Pause {
 public:
  Pause() noexcept {
    if (pauses_of_this_thread++ == 0) ++paused_threads;
  }
  ~Pause() {
    if (--pauses_of_this_thread == 0) --paused_threads;
  }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;
};

// Who is told. One relaxed load says whether anybody is. The bits are set and cleared by the parts
// that they stand for, with the interpreter lock.
enum Listener : std::uint32_t {
  kNvtx = 1,           // NVTX is on
  kTrace = 2,          // a trace records
  kTorchImported = 4,  // torch is there: its profiler may be recording
  kSpans = 8,          // an exporter makes spans
};
inline std::atomic<std::uint32_t> listener_bits{0};

inline void set_listener(Listener which, bool on) noexcept {
  if (on) {
    listener_bits.fetch_or(which, std::memory_order_relaxed);
  } else {
    listener_bits.fetch_and(~static_cast<std::uint32_t>(which), std::memory_order_relaxed);
  }
}

// Whether this thread tells it anything.
inline bool listens(Listener which) noexcept {
  return (listener_bits.load(std::memory_order_relaxed) & which) != 0 && !is_paused();
}

}  // namespace gpuprof::bindings
