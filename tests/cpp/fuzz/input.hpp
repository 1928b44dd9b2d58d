// What the harnesses share: their input in pieces, and readers of UTF-8 and JSON that know nothing
// of src.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>

// A harness, as libFuzzer calls it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace gpuprof::fuzz {

// Ends the program where a promise is broken: main.cpp and libFuzzer then keep the input.
inline void must(bool holds, const char* promise, std::string_view about = {}) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s: '%s'\n", promise, std::string(about).c_str());
  std::abort();
}

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size)
      : left_(reinterpret_cast<const char*>(data), size) {}

  [[nodiscard]] bool empty() const { return left_.empty(); }

  std::string bytes(std::size_t most) {
    std::string taken(left_.substr(0, most));
    left_.remove_prefix(taken.size());
    return taken;
  }

  template <typename Number>
  Number number() {
    Number value{};
    const std::string taken = bytes(sizeof value);
    std::memcpy(&value, taken.data(), taken.size());
    return value;
  }

  // Up to 63 bytes; or these many times over, as texts are cut at some thousands.
  std::string text() {
    const auto head = number<std::uint8_t>();
    const std::string piece = bytes(head & 0x3FU);
    std::string whole = piece;
    for (int i = 0; head >= 0xC0 && i < 100; ++i) whole += piece;
    return whole;
  }

 private:
  std::string_view left_;
};

inline std::string utf8(char32_t code) {
  const auto rest = [code](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | code >> 6), rest(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0 | code >> 12), rest(6), rest(0)};
  return {static_cast<char>(0xF0 | code >> 18), rest(12), rest(6), rest(0)};
}

// The character that the text begins with: the one that encodes to the very same bytes.
inline std::optional<char32_t> character_of(std::string_view text) {
  for (std::size_t size = 1; size <= std::min<std::size_t>(text.size(), 4); ++size) {
    const auto first = static_cast<unsigned char>(text[0]);
    char32_t code = size == 1 ? first : first & (0x7FU >> size);
    for (std::size_t i = 1; i < size; ++i) {
      code = code << 6U | (static_cast<unsigned char>(text[i]) & 0x3FU);
    }
    const bool exists = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    if (exists && utf8(code) == text.substr(0, size)) return code;
  }
  return std::nullopt;
}

// The characters of the text, or nothing if it is not UTF-8.
inline std::optional<std::u32string> characters_of(std::string_view text) {
  std::u32string found;
  while (!text.empty()) {
    const std::optional<char32_t> code = character_of(text);
    if (!code) return std::nullopt;
    found += *code;
    text.remove_prefix(utf8(*code).size());
  }
  return found;
}

// Reads what RFC 8259 calls JSON, in UTF-8, each name once in an object, and nothing else.
class Json {
 public:
  explicit Json(std::string_view text) : all_(text), left_(text) {
    must(characters_of(text).has_value(), "JSON is UTF-8", text);
    value("");
    must(left_.empty(), "JSON ends", text);
  }

  // By its path, "/args/path" or "/samples_ms/0": a string's characters, else what is written.
  const std::string& operator[](const std::string& path) const {
    must(leaves_.count(path) == 1, "a value is there", path);
    return leaves_.at(path);
  }

 private:
  bool takes(std::string_view token) {
    if (left_.substr(0, token.size()) != token) return false;
    left_.remove_prefix(token.size());
    return true;
  }

  char next() {
    must(!left_.empty(), "JSON is whole", all_);
    const char first = left_.front();
    left_.remove_prefix(1);
    return first;
  }

  void value(const std::string& path) {
    const std::string_view before = left_;
    std::string text;
    const bool is_object = takes("{");
    if (is_object || takes("[")) {
      members(path, is_object);
    } else if (takes("\"")) {
      text = string();
    } else {
      if (!takes("true") && !takes("false") && !takes("null")) number();
      text = before.substr(0, before.size() - left_.size());
    }
    must(leaves_.emplace(path, text).second, "names differ", path);
  }

  void members(const std::string& path, bool is_object) {
    const char* end = is_object ? "}" : "]";
    for (std::size_t i = 0; !takes(end); ++i) {
      if (i > 0) must(next() == ',', "members are apart", all_), takes(" ");
      if (is_object) must(next() == '"', "a name is a string", all_);
      const std::string name = is_object ? string() : std::to_string(i);
      if (is_object) must(next() == ':', "a colon is behind a name", all_), takes(" ");
      value(path + "/" + name);
    }
  }

  std::string string() {
    std::string found;
    for (char c = next(); c != '"'; c = next()) {
      must(static_cast<unsigned char>(c) >= 0x20, "control characters are escaped", all_);
      const char escape = c == '\\' ? next() : '\0';
      if (escape == 'u') {
        char digits[5] = {next(), next(), next(), next()};
        must(std::strspn(digits, "0123456789abcdefABCDEF") == 4, "\\u has four digits", all_);
        found += utf8(static_cast<char32_t>(std::strtoul(digits, nullptr, 16)));
      } else if (escape != '\0') {
        constexpr std::string_view kKnown = "\"\\/bfnrt";
        must(kKnown.find(escape) != std::string_view::npos, "an escape is known", all_);
        found += "\"\\/\b\f\n\r\t"[kKnown.find(escape)];
      } else {
        found += c;
      }
    }
    return found;
  }

  void digits() {
    const std::size_t count = std::min(left_.find_first_not_of("0123456789"), left_.size());
    must(count > 0, "a number has digits", all_);
    left_.remove_prefix(count);
  }

  void number() {
    takes("-");
    if (!takes("0")) digits();
    if (takes(".")) digits();
    if (!takes("e")) return;
    if (!takes("+")) takes("-");
    digits();
  }

  std::string_view all_;
  std::string_view left_;
  std::map<std::string, std::string> leaves_;
};

}  // namespace gpuprof::fuzz
