// gpuprof's own ranges, as gpuprof.nvtx.CATALOG describes them: what it does itself, in NVTX.
#pragma once

#include <exception>
#include <utility>

#include "bindings/ranges/listeners.hpp"
#include "bindings/ranges/open_ranges.hpp"

namespace gpuprof::bindings {

enum class OwnRange { kFlush, kDrain, kCapture, kInstantiate, kReplay };

// What it is called: "gpuprof.flush". Needs the interpreter lock, as the rest.
open_ranges::NamedRange shown(OwnRange which);

// Runs `work` inside the range, where NVTX is on. Its exceptions come out with the range closed. A
// thread that ends in it at exit unwinds through, and leaves the range open.
template <typename Work>
void inside_own_range(OwnRange which, Work&& work) {
  if (!listens(kNvtx)) {
    std::forward<Work>(work)();
    return;
  }
  const int owner = 0;  // its address is the range's own
  open_ranges::open(&owner, shown(which), kNvtx);
  try {
    std::forward<Work>(work)();
  } catch (const std::exception&) {
    open_ranges::close(&owner, false);
    throw;
  }
  open_ranges::close(&owner, false);
}

}  // namespace gpuprof::bindings
