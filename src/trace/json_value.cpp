#include "trace/json_value.hpp"

#include <array>
#include <charconv>

namespace gpuprof::trace::reading {
namespace {

// GCC's name, which is no part of C++17.
__extension__ using Wide = unsigned __int128;

constexpr std::uint32_t kReplacement = 0xfffd;

void append_utf8(std::string& out, std::uint32_t code) {
  const auto put = [&out](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0U | code >> 6U);
    put(0x80U | (code & 0x3fU));
  } else if (code < 0x10000) {
    put(0xe0U | code >> 12U);
    put(0x80U | (code >> 6U & 0x3fU));
    put(0x80U | (code & 0x3fU));
  } else {
    put(0xf0U | code >> 18U);
    put(0x80U | (code >> 12U & 0x3fU));
    put(0x80U | (code >> 6U & 0x3fU));
    put(0x80U | (code & 0x3fU));
  }
}

std::uint32_t hex4(std::string_view digits) noexcept {
  std::uint32_t code = 0;
  const char* begin = &digits.front();
  std::from_chars(begin, begin + 4, code, 16);
  return code;
}

// The character of the \u escape whose digits begin at `at`; moves `at` past it, and past the
// second half of a pair.
std::uint32_t escaped_character(std::string_view text, std::size_t& at) {
  const std::uint32_t high = hex4(text.substr(at));
  at += 4;
  if (high < 0xd800 || high > 0xdfff) return high;
  if (high > 0xdbff || text.substr(at, 2) != "\\u") return kReplacement;
  const std::uint32_t low = hex4(text.substr(at + 2));
  if (low < 0xdc00 || low > 0xdfff) return kReplacement;
  at += 6;
  return 0x10000 + ((high - 0xd800) << 10U) + (low - 0xdc00);
}

// The digits of a decimal number and where its point is.
struct Decimal {
  Wide digits = 0;         // at most 30 of them
  std::int64_t scale = 0;  // the number is digits * 10^scale
  bool rest = false;       // digits that are not zero were left out
  bool negative = false;
};

// The number after an e.
std::int64_t exponent(std::string_view text) {
  constexpr std::int64_t kHuge = 1'000'000'000;  // beyond all digits a text can have here
  const bool negative = text.front() == '-';
  if (text.front() == '+') text.remove_prefix(1);
  const auto value = whole_number(text);
  if (!value || *value > kHuge || *value < -kHuge) return negative ? -kHuge : kHuge;
  return *value;
}

Decimal decimal(std::string_view number) {
  constexpr int kMostDigits = 30;
  Decimal result;
  int count = 0;
  bool fraction = false;
  std::size_t at = 0;
  for (; at < number.size(); ++at) {
    const char c = number[at];
    if (c == '-') {
      result.negative = true;
    } else if (c == '.') {
      fraction = true;
    } else if (c == 'e' || c == 'E') {
      break;
    } else if (count < kMostDigits) {
      result.digits = result.digits * 10 + static_cast<unsigned>(c - '0');
      if (result.digits != 0) ++count;
      if (fraction) --result.scale;
    } else {
      result.rest = result.rest || c != '0';
      if (!fraction) ++result.scale;
    }
  }
  if (at < number.size()) result.scale += exponent(number.substr(at + 1));
  return result;
}

}  // namespace

std::string unquoted(std::string_view text) {
  text = text.substr(1, text.size() - 2);
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t backslash = text.find('\\', at);
    result.append(text.substr(at, backslash - at));
    if (backslash == std::string_view::npos) break;
    const char kind = text[backslash + 1];
    at = backslash + 2;
    switch (kind) {
      case 'b':
        result.push_back('\b');
        break;
      case 'f':
        result.push_back('\f');
        break;
      case 'n':
        result.push_back('\n');
        break;
      case 'r':
        result.push_back('\r');
        break;
      case 't':
        result.push_back('\t');
        break;
      case 'u':
        append_utf8(result, escaped_character(text, at));
        break;
      default:
        result.push_back(kind);
    }
  }
  return result;
}

std::string quoted(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (byte < 0x20) {
      result += "\\u00";
      result += kDigits[byte >> 4U];
      result += kDigits[byte & 0xfU];
    } else {
      result += c;
    }
  }
  return result += '"';
}

namespace {

// The usual case: at most 15 digits before the point, at most three after it. -1 for any other.
std::int64_t few_digits(std::string_view number) noexcept {
  if (number.size() > 19) return -1;
  std::int64_t value = 0;
  int decimals = -1;
  for (const char c : number) {
    if (c >= '0' && c <= '9') {
      value = value * 10 + (c - '0');
      if (decimals >= 0) ++decimals;
    } else if (c == '.') {
      decimals = 0;
    } else {
      return -1;
    }
  }
  if (decimals > 3) return -1;
  if (decimals < 0) {
    if (number.size() > 15) return -1;
    decimals = 0;
  }
  constexpr std::array<std::int64_t, 4> kMissing{1000, 100, 10, 1};
  return value * kMissing[static_cast<std::size_t>(decimals)];
}

}  // namespace

std::optional<Nanoseconds> nanoseconds(std::string_view number) {
  if (const std::int64_t value = few_digits(number); value >= 0) return Nanoseconds{value, true};
  constexpr auto kMost = static_cast<Wide>(kMostNanoseconds);
  Decimal parsed = decimal(number);
  Nanoseconds result;
  parsed.scale += 3;
  for (; parsed.scale > 0 && parsed.digits != 0; --parsed.scale) {
    if (parsed.digits > kMost) return std::nullopt;
    parsed.digits *= 10;
  }
  unsigned dropped = 0;  // the first digit after the nanosecond
  for (; parsed.scale < 0 && (parsed.digits != 0 || dropped != 0); ++parsed.scale) {
    parsed.rest = parsed.rest || dropped != 0;
    dropped = static_cast<unsigned>(parsed.digits % 10);
    parsed.digits /= 10;
  }
  result.exact = dropped == 0 && !parsed.rest;
  if (dropped >= 5) ++parsed.digits;
  if (parsed.digits > kMost) return std::nullopt;
  result.value = static_cast<std::int64_t>(parsed.digits);
  if (parsed.negative) result.value = -result.value;
  return result;
}

std::optional<std::int64_t> whole_number(std::string_view number) {
  if (number.empty()) return std::nullopt;
  std::int64_t value = 0;
  const char* begin = &number.front();
  const char* end = begin + number.size();
  const auto parsed = std::from_chars(begin, end, value);
  if (parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  return value;
}

std::string microseconds(std::int64_t nanoseconds) {
  const bool negative = nanoseconds < 0;
  const std::uint64_t size = negative ? ~static_cast<std::uint64_t>(nanoseconds) + 1
                                      : static_cast<std::uint64_t>(nanoseconds);
  const std::string rest = std::to_string(size % 1000);
  return (negative ? "-" : "") + std::to_string(size / 1000) + "." +
         std::string(3 - rest.size(), '0') + rest;
}

std::optional<Member> member(std::string_view object, std::string_view key) {
  if (object.empty() || object.front() != '{') return std::nullopt;
  JsonReader reader(true);  // whoever read the event has decided what to tolerate
  reader.feed(object);
  Token token;
  bool found = false;
  std::uint64_t begin = 0;
  Member result;
  const auto text = [&object](std::uint64_t from, std::uint64_t to) {
    return object.substr(from, to - from);
  };
  while (reader.next(token)) {
    if (token.depth != 1) continue;
    if (token.kind == TokenKind::kKey) {
      const std::string_view name = text(token.begin, token.end);
      found = token.escaped ? unquoted(name) == key : name.substr(1, name.size() - 2) == key;
    } else if (token.kind == TokenKind::kBeginObject || token.kind == TokenKind::kBeginArray) {
      result.kind = token.kind;
      begin = token.begin;
    } else if (found) {
      if (token.kind == TokenKind::kEndObject || token.kind == TokenKind::kEndArray) {
        result.value = text(begin, token.end);
      } else {
        result.kind = token.kind;
        result.value = text(token.begin, token.end);
      }
      return result;
    }
  }
  return std::nullopt;
}

}  // namespace gpuprof::trace::reading
