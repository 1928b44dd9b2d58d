// Python's cyclic garbage collector, paused while anybody asks for it.
//
// A collection inside a stream capture may destroy somebody's graph or event and break the capture.
// The pauses of the process are counted; the last one puts the collector back as the first one
// found it. All of it needs the interpreter lock.
#pragma once

namespace gpuprof::bindings {

class GcPause {
 public:
  GcPause() = default;
  GcPause(const GcPause&) = delete;
  GcPause& operator=(const GcPause&) = delete;
  ~GcPause() { end(); }

  void begin() noexcept;  // idempotent
  void end() noexcept;    // idempotent

 private:
  bool paused_ = false;
};

// How many pauses there are.
[[nodiscard]] int gc_pauses() noexcept;

}  // namespace gpuprof::bindings
