#include "bindings/nvtx_own_ranges.hpp"

#include <array>

#include "bindings/nvtx_range_face.hpp"

namespace gpuprof::bindings {

open_ranges::Shown shown(OwnRange which) {
  static auto& faces = *new std::array<RangeFace, 5>{
      RangeFace("gpuprof.flush"), RangeFace("gpuprof.drain"), RangeFace("gpuprof.capture"),
      RangeFace("gpuprof.instantiate"), RangeFace("gpuprof.replay")};
  return faces[static_cast<std::size_t>(which)].shown();
}

}  // namespace gpuprof::bindings
