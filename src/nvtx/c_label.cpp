#include "nvtx/c_label.hpp"

namespace gpuprof::nvtx {
namespace {

constexpr std::string_view kEllipsis = "\xE2\x80\xA6";  // U+2026

constexpr bool continues_character(char byte) noexcept {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

}  // namespace

std::string cut_text(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  std::size_t keep = most - kEllipsis.size();
  while (keep > 0 && continues_character(text[keep])) --keep;
  std::string shown(text.substr(0, keep));
  shown += kEllipsis;
  return shown;
}

std::string shown_label(std::string_view text) { return cut_text(text, kMaxLabelBytes); }

}  // namespace gpuprof::nvtx
