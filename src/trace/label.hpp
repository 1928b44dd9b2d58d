// Names and categories of events: escaped for JSON once.
//
// An interned label lives as long as the process, so that events on any thread may point at it. At
// most kMaxLabels exist; events own their labels past that. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gpuprof::trace {

inline constexpr std::size_t kMaxLabels = 10'000;
inline constexpr std::size_t kMaxTextBytes = 4096;

struct Label {
  std::string json;  // the text as a JSON string, quotes included
  std::string args;  // what each event with this name has among its args
};

// The label of a text; null if it is new and there are kMaxLabels. Throws std::bad_alloc.
const Label* intern(std::string_view text);

// The same with `path` among the args of its events. Past their number without it.
const Label* intern_with_path(std::string_view text, std::string_view path);

// The label of a category. At most kMaxCategories exist; the rest share `(other)`.
inline constexpr std::size_t kMaxCategories = 1000;
const Label* intern_category(std::string_view text);

// Appends `text` as a JSON string, cut at kMaxTextBytes with an ellipsis. Only `"`, `\` and control
// characters are escaped; NUL and what is not UTF-8, such as lone surrogates, become U+FFFD. A
// zero-width space follows a final backslash, because Perfetto up to v52 rejects the whole file for
// such a string.
void append_json(std::string& out, std::string_view text);

// A number as JSON, in every locale of the program; null where it is not finite.
std::string json_number(double value);

}  // namespace gpuprof::trace
