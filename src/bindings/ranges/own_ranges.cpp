#include "bindings/ranges/own_ranges.hpp"

#include <array>

#include "bindings/ranges/range_attributes.hpp"

namespace gpuprof::bindings {

open_ranges::NamedRange shown(OwnRange which) {
  static auto& faces = *new std::array<RangeAttributes, 5>{
      RangeAttributes("gpuprof.flush"), RangeAttributes("gpuprof.drain"),
      RangeAttributes("gpuprof.capture"), RangeAttributes("gpuprof.instantiate"),
      RangeAttributes("gpuprof.replay")};
  return faces[static_cast<std::size_t>(which)].shown();
}

}  // namespace gpuprof::bindings
