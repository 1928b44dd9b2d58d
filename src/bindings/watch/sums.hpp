// What a watch measures: the sums of each module's passes, and the samples that are not read yet.
//
// All functions need the interpreter lock, which guards the sums.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "timing/sample.hpp"

namespace gpuprof::bindings::watch {

// The passes of one module of one kind.
struct Pass {
  std::uint64_t calls = 0, timed = 0, failed = 0, dropped = 0, skipped = 0, pending = 0;
  double all_ms = 0.0;
  double outermost_ms = 0.0;  // without the calls inside of a call of the same module
  double inside_ms = 0.0;     // of those that ran inside of a pass of the module above
  double below_ms = 0.0;      // of the passes of other modules inside of these
  pybind11::typing::List<pybind11::object>
      captured;  // for each call in a graph a tuple of its samples, as in `Waiting`
};

// A place in the tree of modules. Lives as long as the watch.
struct Entry {
  Entry(const void* its_module, Entry* its_caller) : module(its_module), caller(its_caller) {}
  const void* module;  // its address
  Entry* caller;       // the closest module above that can be called
  unsigned memory_reads = 0;
  pybind11::object activation_bytes = pybind11::none();
  Pass forward, recomputed, backward;
};

// A sample that is not read yet.
struct Waiting {
  timing::SampleRef sample;
  Entry* entry;
  Pass* pass;     // that it belongs to
  Entry* around;  // the module whose pass is open around it, or null
  Pass* around_pass;
  bool is_nested;                          // in another pass of the same module
  std::vector<timing::SampleRef> without;  // what ran inside and is another time
};

// Adds up samples once they are known.
class Sums {
 public:
  // Takes a sample whose scope was left; never waits.
  void take(Waiting waiting);

  // Adds what has been measured; with `wait`, waits for what has been queued.
  void fold(bool wait);

  [[nodiscard]] const std::vector<timing::ClockId>& clocks() const noexcept { return clocks_; }

 private:
  void fold_known();
  void add(const Waiting& waiting, double ms, const timing::Sample* unknown);

  std::deque<Waiting> waiting_;
  std::vector<timing::ClockId> clocks_;
};

}  // namespace gpuprof::bindings::watch
