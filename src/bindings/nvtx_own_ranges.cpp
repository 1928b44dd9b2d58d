#include "bindings/nvtx_own_ranges.hpp"

#include "bindings/nvtx_range_face.hpp"

namespace gpuprof::bindings {

open_ranges::Shown shown(OwnRange which) {
  static auto& flush = *new RangeFace("gpuprof.flush");
  static auto& drain = *new RangeFace("gpuprof.drain");
  return which == OwnRange::kFlush ? flush.shown() : drain.shown();
}

}  // namespace gpuprof::bindings
