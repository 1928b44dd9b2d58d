// Texts that events name: made once, escaped for JSON once.
//
// An interned label lives as long as the process, so that events may point at it from any thread;
// at most kMaxLabels exist. What comes after is made for one event, which owns it. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gpuprof::trace {

inline constexpr std::size_t kMaxLabels = 10'000;
inline constexpr std::size_t kMaxTextBytes = 4096;

struct Label {
  std::string json;  // the text as a JSON string, quotes included
};

// The label of a text; null once there are kMaxLabels others. Throws std::bad_alloc.
const Label* intern(std::string_view text);

// The label of a category. Of these at most kMaxCategories exist; the rest are one, `(other)`.
inline constexpr std::size_t kMaxCategories = 1000;
const Label* intern_category(std::string_view text);

// Appends `text` as a JSON string: UTF-8 as it is, only `"`, `\` and control characters escaped,
// what is not UTF-8 (lone surrogates among it) and NUL as U+FFFD, cut at kMaxTextBytes with an
// ellipsis. A text that ends in a backslash gets a zero-width space after it, because Perfetto up
// to v52 refuses a whole file for such a string.
void append_json(std::string& out, std::string_view text);

}  // namespace gpuprof::trace
