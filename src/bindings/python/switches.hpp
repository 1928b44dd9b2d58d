// What switches scopes and ranges off, besides the switch that users have at run time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

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

// Lifts the pause for the life of the object: for a scope of gpuprof's own.
class Unpause {
 public:
  Unpause() noexcept : pauses_(std::exchange(pauses_of_this_thread, 0)) {}
  ~Unpause() { pauses_of_this_thread = pauses_; }
  Unpause(const Unpause&) = delete;
  Unpause& operator=(const Unpause&) = delete;

 private:
  std::uint32_t pauses_;
};

}  // namespace gpuprof::bindings
