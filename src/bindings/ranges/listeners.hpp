// Who is told of scopes and annotations as they open and close, besides the statistics.
//
// One relaxed load says whether anybody is. The bits are set and cleared by the parts that they
// stand for, with the interpreter lock.
#pragma once

#include <atomic>
#include <cstdint>

#include "bindings/python/switches.hpp"

namespace gpuprof::bindings {

enum Listener : std::uint32_t {
  kNvtx = 1,           // NVTX is on
  kTrace = 2,          // a trace records
  kTorchImported = 4,  // torch is there: its profiler may be recording
};
inline std::atomic<std::uint32_t> emitters{0};

inline void set_listener(Listener which, bool on) noexcept {
  if (on) {
    emitters.fetch_or(which, std::memory_order_relaxed);
  } else {
    emitters.fetch_and(~static_cast<std::uint32_t>(which), std::memory_order_relaxed);
  }
}

// Whether this thread tells it anything.
inline bool listens(Listener which) noexcept {
  return (emitters.load(std::memory_order_relaxed) & which) != 0 && !is_paused();
}

}  // namespace gpuprof::bindings
