// Colours as NVTX takes them: 0xAARRGGBB. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gpuprof::nvtx {

// The colour that `text` names: one of color_names(), `#rrggbb` or `#aarrggbb`; case does not
// matter.
std::optional<std::uint32_t> color_of(std::string_view text);

// The names that there are, for messages: `black, blue, ...`.
std::string color_names();

}  // namespace gpuprof::nvtx
