// What NVTX shows of a range: labels and colours. Pure functions, any thread.
//
// A label is a C string of at least one character: NVTX takes pointers, so text after a NUL would
// be lost without an error. Tools read it as UTF-8. Colours are 0xAARRGGBB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gpuprof::nvtx {

inline constexpr std::size_t kMaxLabelBytes = 4096;

// Whether `bytes`, with the final NUL, are a label: at least two bytes, only the last one NUL.
constexpr bool valid_label(std::string_view bytes) noexcept {
  return bytes.size() >= 2 && bytes.find('\0') == bytes.size() - 1;
}

// `text`, or if it is longer than `most` bytes (at least 3) cut between two characters, with an
// ellipsis.
std::string cut_text(std::string_view text, std::size_t most);

// `text` as it is shown: cut to kMaxLabelBytes.
std::string shown_label(std::string_view text);

// The colour that `text` names: one of color_names(), `#rrggbb` or `#aarrggbb`; case does not
// matter.
std::optional<std::uint32_t> color_of(std::string_view text);

// All names, for messages: `black, blue, ...`.
std::string color_names();

}  // namespace gpuprof::nvtx
