// What the text of a JSON value says: strings, times, whole numbers, members of objects.
//
// All functions take text that a JsonReader has accepted. Stateless, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trace/json_reader.hpp"

namespace gpuprof::trace::reading {

// The characters of a JSON string, quotes included in `text`: escapes are undone, a lone surrogate
// becomes U+FFFD.
std::string unquoted(std::string_view text);

// The text as a JSON string, quotes included; `text` is UTF-8.
std::string quoted(std::string_view text);

// A time in a trace: microseconds in decimal, as whole nanoseconds.
struct Nanoseconds {
  std::int64_t value = 0;
  bool exact = true;  // false where digits past the nanosecond were rounded off
};
// The largest time, 146 years: differences and ends of spans still fit into 64 bits.
inline constexpr std::int64_t kMostNanoseconds = std::int64_t{1} << 62U;
// Nothing where the time is larger.
std::optional<Nanoseconds> nanoseconds(std::string_view number);

// A number without fraction and exponent that fits; else nothing.
std::optional<std::int64_t> whole_number(std::string_view number);

// Nanoseconds as microseconds with three decimals.
std::string microseconds(std::int64_t nanoseconds);

struct Member {
  TokenKind kind = TokenKind::kNull;  // that of the value, the begin of a container
  std::string_view value;
};
// A member of the object, by name; nothing where it has none or is no object. The first one counts.
std::optional<Member> member(std::string_view object, std::string_view key);

}  // namespace gpuprof::trace::reading
