#include "nvtx/attributes.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace gpuprof::nvtx {
namespace {

constexpr std::string_view kEllipsis = "\xE2\x80\xA6";  // U+2026

constexpr bool continues_character(char byte) noexcept {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

constexpr std::uint32_t kOpaque = 0xFF000000;

// The basic colours of CSS, and those that PyPI's nvtx has besides.
constexpr std::array<std::pair<std::string_view, std::uint32_t>, 23> kColors{{
    {"aqua", 0x00FFFF},      {"black", 0x000000},   {"blue", 0x0000FF},    {"cyan", 0x00FFFF},
    {"darkgreen", 0x006400}, {"fuchsia", 0xFF00FF}, {"gray", 0x808080},    {"green", 0x008000},
    {"grey", 0x808080},      {"lime", 0x00FF00},    {"magenta", 0xFF00FF}, {"maroon", 0x800000},
    {"navy", 0x000080},      {"olive", 0x808000},   {"orange", 0xFFA500},  {"pink", 0xFFC0CB},
    {"purple", 0x800080},    {"rapids", 0x7400FF},  {"red", 0xFF0000},     {"silver", 0xC0C0C0},
    {"teal", 0x008080},      {"white", 0xFFFFFF},   {"yellow", 0xFFFF00},
}};

char lower(char letter) noexcept {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

std::optional<std::uint32_t> hexadecimal(std::string_view digits) {
  std::uint32_t value = 0;
  const char* const begin = digits.data();
  const char* const end = begin + digits.size();
  const auto [stop, error] = std::from_chars(begin, end, value, 16);
  if (error != std::errc{} || stop != end) return std::nullopt;
  if (digits.size() == 6) return value | kOpaque;
  if (digits.size() == 8) return value;
  return std::nullopt;
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

std::optional<std::uint32_t> color_of(std::string_view text) {
  if (!text.empty() && text[0] == '#') return hexadecimal(text.substr(1));
  std::string name(text.substr(0, 16));  // longer than every name
  std::transform(name.begin(), name.end(), name.begin(), lower);
  const auto* found = std::find_if(kColors.begin(), kColors.end(),
                                   [&](const auto& color) { return color.first == name; });
  if (found == kColors.end()) return std::nullopt;
  return found->second | kOpaque;
}

std::string color_names() {
  std::string names;
  for (const auto& [name, value] : kColors) {
    if (!names.empty()) names += ", ";
    names += name;
  }
  return names;
}

}  // namespace gpuprof::nvtx
