#include "trace/label.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "driver/process.hpp"

namespace gpuprof::trace {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";     // U+FFFD
constexpr std::string_view kZeroWidthSpace = "\xE2\x80\x8B";  // U+200B
constexpr std::string_view kEllipsis = "\xE2\x80\xA6";        // U+2026

struct Labels {
  driver::ForkMutex mutex;
  std::unordered_map<std::string, std::unique_ptr<const Label>> by_text;
};

struct AllLabels {  // events point into it
  Labels names;
  Labels paths;  // by the path, a NUL and the name
  Labels categories;
  const Label other_category{"\"(other)\"", {}};
};

AllLabels& labels() { return driver::immortal<AllLabels>(); }

constexpr bool is_continuation(unsigned char byte) noexcept { return (byte & 0xC0U) == 0x80U; }

// The length of the UTF-8 character at the start of `text`; 0 if there is none.
std::size_t character_length(std::string_view text) noexcept {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  std::size_t length = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;   // overlong
    if (first == 0xED) high = 0x9F;  // surrogates
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;  // above U+10FFFF
  }
  if (length == 0 || text.size() < length || at(1) < low || at(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (!is_continuation(at(i))) return 0;
  }
  return length;
}

// A lone surrogate as it comes out of Python's strings.
bool is_surrogate(std::string_view text) noexcept {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  return text.size() >= 3 && at(0) == 0xED && at(1) >= 0xA0 && is_continuation(at(1)) &&
         is_continuation(at(2));
}

void append_escaped(std::string& out, unsigned char byte) {
  constexpr char kHex[] = "0123456789abcdef";
  if (byte == '"' || byte == '\\') {
    (out += '\\') += static_cast<char>(byte);
  } else if (byte == '\n' || byte == '\t') {
    out += byte == '\n' ? "\\n" : "\\t";
  } else {
    out += "\\u00";
    out += kHex[byte >> 4U];
    out += kHex[byte & 15U];
  }
}

// Where to cut a text that is too long: not inside a character.
std::size_t cut_at(std::string_view text) noexcept {
  std::size_t keep = kMaxTextBytes - kEllipsis.size();
  while (keep > 0 && is_continuation(static_cast<unsigned char>(text[keep]))) --keep;
  return keep;
}

const Label* find_or_make(Labels& among, std::string_view text, std::size_t most,
                          std::string_view path = {}) {
  std::string key(text.substr(0, kMaxTextBytes + 1));  // no more of it is ever shown
  const std::string name = key;
  if (!path.empty()) key.insert(0, 1, '\0').insert(0, path);
  const std::lock_guard lock(among.mutex);
  if (const auto found = among.by_text.find(key); found != among.by_text.end()) {
    return found->second.get();
  }
  if (among.by_text.size() >= most) return nullptr;
  auto label = std::make_unique<Label>();
  append_json(label->json, name);
  if (!path.empty()) append_json(label->args = "\"path\":", path);
  return among.by_text.emplace(std::move(key), std::move(label)).first->second.get();
}

}  // namespace

const Label* intern(std::string_view text) {
  return find_or_make(labels().names, text, kMaxLabels);
}

const Label* intern_with_path(std::string_view text, std::string_view path) {
  const Label* label = find_or_make(labels().paths, text, kMaxLabels, path);
  return label != nullptr ? label : intern(text);
}

const Label* intern_category(std::string_view text) {
  const Label* label = find_or_make(labels().categories, text, kMaxCategories);
  return label != nullptr ? label : &labels().other_category;
}

void append_json(std::string& out, std::string_view text) {
  const bool cut = text.size() > kMaxTextBytes;
  if (cut) text = text.substr(0, cut_at(text));
  const bool ends_in_backslash = !cut && !text.empty() && text.back() == '\\';
  out += '"';
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text[0]);
    std::size_t length = character_length(text);
    if (length == 0) {
      out += kReplacement;
      length = is_surrogate(text) ? 3 : 1;
    } else if (byte == 0) {  // Perfetto cuts texts there
      out += kReplacement;
    } else if (byte == '"' || byte == '\\' || byte < 0x20) {
      append_escaped(out, byte);
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  if (cut) out += kEllipsis;
  if (ends_in_backslash) out += kZeroWidthSpace;
  out += '"';
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 32> digits{};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr};
}

}  // namespace gpuprof::trace
