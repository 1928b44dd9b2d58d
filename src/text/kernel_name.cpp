#include "text/kernel_name.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace gpuprof::graph_text {
namespace {

constexpr std::size_t kMaxText = 4096;  // bytes
constexpr char kReplacement[] = "\xEF\xBF\xBD";
constexpr char kEllipsis[] = "\xE2\x80\xA6";

constexpr std::size_t kNoNumber = 0;

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// The decimal number at `at`, which moves behind it. kNoNumber if it does not fit into the symbol.
std::size_t number(const std::string& symbol, std::size_t& at) {
  std::size_t value = 0;
  for (; at < symbol.size() && is_digit(symbol[at]); ++at) {
    value = value * 10 + static_cast<std::size_t>(symbol[at] - '0');
    if (value > symbol.size()) return kNoNumber;
  }
  return value;
}

// The plain names at the front of a mangled symbol, up to the first template argument or parameter:
// _ZN7cutlass13device_kernelIN... is cutlass::device_kernel<...>. Empty if there are none.
std::string leading_name(const std::string& symbol) {
  std::string name;
  std::size_t at = 2;
  const bool nested = symbol[at] == 'N';
  if (nested) ++at;
  if (symbol.compare(at, 2, "St") == 0) {
    name = "std";
    at += 2;
  }
  while (at < symbol.size() && is_digit(symbol[at])) {
    const std::size_t length = number(symbol, at);
    if (length == kNoNumber || length > symbol.size() - at) return {};
    const std::string part = symbol.substr(at, length);
    at += length;
    name += name.empty() ? "" : "::";
    name += part.compare(0, 10, "_GLOBAL__N") == 0 ? "(anonymous namespace)" : part;
    if (!nested) break;
  }
  if (!name.empty() && at < symbol.size() && symbol[at] == 'I') name += "<...>";
  return name;
}

bool continues(char byte) noexcept { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

// The bytes of the character at the beginning of `text`; 0 where they are no UTF-8.
std::size_t character_size(std::string_view text, std::uint32_t& code) noexcept {
  const auto first = static_cast<unsigned char>(text[0]);
  code = first;
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
  code = first & (0xFFU >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if (!continues(text[i])) return 0;
    code = code << 6U | (static_cast<unsigned char>(text[i]) & 0x3FU);
  }
  constexpr std::array<std::uint32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < kLeast[size] || surrogate || code > 0x10FFFF ? 0 : size;
}

// Characters that would move or reorder what stands beside them.
bool is_direction(std::uint32_t code) noexcept {
  return code == 0x061C || code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

std::string escape_of(std::uint32_t code) {
  char text[16];
  std::snprintf(text, sizeof text, code < 0x100 ? "\\x%02x" : "\\u%04x", code);
  return text;
}

// Where the character with this number begins.
std::size_t offset_of(std::string_view text, std::size_t character) noexcept {
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    if (continues(text[at])) continue;
    if (character-- == 0) break;
  }
  return at;
}

// Anonymous namespaces without their parentheses, which would end the name.
std::string with_short_anonymous(std::string text) {
  constexpr std::string_view kLong = "(anonymous namespace)";
  for (std::size_t at = text.find(kLong); at != std::string::npos; at = text.find(kLong, at)) {
    text.replace(at, kLong.size(), "{anonymous}");
  }
  return text;
}

char closer_of(char opener) noexcept {
  constexpr std::string_view kOpeners = "<([{";
  const std::size_t place = kOpeners.find(opener);
  return place != std::string_view::npos ? ">)]}"[place] : '\0';
}

// Drops the result and the parameters, and what stands in angle and square brackets.
std::string without_types(const std::string& name) {
  std::string kept;
  std::string closers;
  for (const char c : name) {
    if (!closers.empty()) {
      if (c == closers.back()) {
        closers.pop_back();
      } else if (closer_of(c) != 0) {
        closers.push_back(closer_of(c));
      } else if (closers.front() != '}') {
        continue;
      }
      if (closers.empty() && c == '>') {
        kept += "<...>";
      } else if (closers.empty() ? c == '}' : closers.front() == '}') {
        kept += c;
      }
    } else if (c == '(') {
      break;
    } else if (closer_of(c) != 0) {
      closers.push_back(closer_of(c));
      if (c == '{') kept += c;
    } else if (c == ' ') {
      kept.clear();
    } else {
      kept += c;
    }
  }
  return kept;
}

}  // namespace

std::string demangled(const std::string& symbol) {
  if (symbol.compare(0, 2, "_Z") != 0 || symbol.size() < 3) return symbol;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
  if (text != nullptr) return text.get();
  std::string name = leading_name(symbol);
  return name.empty() ? symbol : name;
}

std::string shown(std::string_view text) {
  std::string result;
  const bool is_long = text.size() > kMaxText;
  if (is_long) {
    std::size_t end = kMaxText - 3;
    while (end > 0 && continues(text[end])) --end;
    text = text.substr(0, end);
  }
  while (!text.empty()) {
    std::uint32_t code = 0;
    const std::size_t size = character_size(text, code);
    if (size == 0 || code == 0) {
      result += kReplacement;
    } else if (code < 0x20 || (code >= 0x7F && code < 0xA0) || is_direction(code)) {
      result += escape_of(code);
    } else {
      result += text.substr(0, size);
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return is_long ? result + kEllipsis : result;
}

std::size_t characters(std::string_view text) noexcept {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return !continues(byte); }));
}

std::string cut(std::string_view text, std::size_t most, std::size_t tail) {
  const std::size_t count = characters(text);
  if (count <= most) return std::string(text);
  return std::string(text.substr(0, offset_of(text, most - tail - 1))) + kEllipsis +
         std::string(text.substr(offset_of(text, count - tail)));
}

std::string short_name(const std::string& name) {
  const std::string plain = shown(name);
  const std::string bare = without_types(with_short_anonymous(plain));
  return cut(bare.empty() ? plain : bare, kMaxName);
}

std::string around(const std::string& name, std::size_t place) {
  const std::size_t count = characters(name);
  const std::size_t begin = place > kMaxName / 3 ? place - kMaxName / 3 : 0;
  const std::size_t end = std::min(place + kMaxName, count);
  const std::size_t from = offset_of(name, begin);
  return (begin > 0 ? kEllipsis : "") + name.substr(from, offset_of(name, end) - from) +
         (end < count ? kEllipsis : "");
}

}  // namespace gpuprof::graph_text
