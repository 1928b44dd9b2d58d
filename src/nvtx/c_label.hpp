// The texts that NVTX shows.
//
// A label is a C string of at least one character: NVTX takes pointers, so what follows a NUL would
// be lost without a word. Tools read it as UTF-8. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gpuprof::nvtx {

inline constexpr std::size_t kMaxLabelBytes = 4096;

// Whether `bytes`, the final NUL included, is a label: at least two bytes, the last one the only
// NUL.
constexpr bool valid_label(std::string_view bytes) noexcept {
  return bytes.size() >= 2 && bytes.find('\0') == bytes.size() - 1;
}

// `text` cut between two characters, with an ellipsis, if it is longer than `most` bytes, of which
// there are at least three.
std::string cut_text(std::string_view text, std::size_t most);

// `text` as it is shown: cut to kMaxLabelBytes.
std::string shown_label(std::string_view text);

}  // namespace gpuprof::nvtx
