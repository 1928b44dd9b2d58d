// Python's memory beside CUDA graphs: objects that a graph needs until its last launch is over, and
// collections while a capture is open.
//
// What finds that out may be without Python's lock and inside a call of the driver's. So it only
// puts the bundle on a list, and the objects are let go by the next drain_kept(): every call that
// makes, closes or watches a graph comes by, and so do gpuprof.flush() and stats().
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

#include "graphs/captured_graph.hpp"

namespace gpuprof::bindings {

// A bundle of the tuple's objects; null for none. With the interpreter lock.
graphs::Payload keep_alive(const pybind11::tuple& objects);

// Looks which replays are over, and lets go of what was released, in the order of the bundles.
// Cheap where there is nothing. Needs the interpreter lock; runs destructors of any kind.
void drain_kept();

// Lets go of what was released, from the main thread and a moment later, for a caller that must not
// run destructors.
void drain_kept_soon() noexcept;

// Collections of Python's garbage collector while a stream capture is open.
//
// A collection may destroy somebody's event or memory, which would break the capture. So while
// anybody asks for it, a collection runs with its thread in relaxed capture mode: a callback in
// gc.callbacks, in the list only meanwhile. The collector itself stays as it is: only it can find
// an open capture in a reference cycle. What waits for the whole context breaks a capture all the
// same. All of it needs the interpreter lock.
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
  std::uint32_t generation_ = 0;  // of the process that asked
};

// Nobody asks any more, in a forked child: its captures are the parent's.
void end_relaxed_collections() noexcept;

// How many ask: above 0 while a capture of gpuprof's is open.
inline int relaxed_collections_wanted = 0;
[[nodiscard]] inline int relaxed_collections() noexcept { return relaxed_collections_wanted; }

}  // namespace gpuprof::bindings
