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
  unsigned round_ = 0;  // of pauses; end_gc_pauses() begins a new one
};

// Ends all pauses of this process, in a forked child: its captures are the parent's.
void end_gc_pauses() noexcept;

// How many pauses there are.
[[nodiscard]] int gc_pauses() noexcept;

}  // namespace gpuprof::bindings
