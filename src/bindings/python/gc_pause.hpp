// Collections of Python's garbage collector while a stream capture is open.
//
// A collection may destroy somebody's event or memory, which would break the capture. So while
// anybody asks for it, a collection runs with its thread in relaxed capture mode: a callback in
// gc.callbacks, in the list only meanwhile. The collector itself stays as it is: only it can find
// an open capture in a reference cycle. What waits for the whole context breaks a capture all the
// same. All of it needs the interpreter lock.
#pragma once

namespace gpuprof::bindings {

class RelaxedCollections {
 public:
  RelaxedCollections() = default;
  RelaxedCollections(const RelaxedCollections&) = delete;
  RelaxedCollections& operator=(const RelaxedCollections&) = delete;
  ~RelaxedCollections() { end(); }

  void begin();         // idempotent; throws Python's exceptions
  void end() noexcept;  // idempotent

 private:
  bool asked_ = false;
  unsigned round_ = 0;  // end_relaxed_collections() begins a new one
};

// Nobody asks any more, in a forked child: its captures are the parent's.
void end_relaxed_collections() noexcept;

// How many ask.
[[nodiscard]] int relaxed_collections() noexcept;

}  // namespace gpuprof::bindings
