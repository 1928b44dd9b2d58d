// Kernels' names as people write and read them.
//
// A kernel's name may be any bytes. What is returned here, but for demangled(), is valid UTF-8 on
// one line, with control characters made visible. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gpuprof::graph_text {

inline constexpr std::size_t kMaxName = 60;  // characters

// `symbol` without its C++ mangling: "void add_k<float>(float*)". Names of C and of other
// languages stay as they are. The runtime's demangler refuses symbols past about a thousand bytes;
// what is left of those is the qualified name, with "<...>" for its template arguments.
[[nodiscard]] std::string demangled(const std::string& symbol);

// Text that can be shown.
[[nodiscard]] std::string shown(std::string_view text);

// How many characters UTF-8 has.
[[nodiscard]] std::size_t characters(std::string_view text) noexcept;

// At most `most` characters of a shown text, cut in the middle so that both ends can be read: of
// the later one so many, or a third.
[[nodiscard]] std::string cut(std::string_view text, std::size_t most, std::size_t tail);
[[nodiscard]] inline std::string cut(std::string_view text, std::size_t most) {
  return cut(text, most, most / 3);
}

// What tells a kernel's name from others: no result, arguments or long templates.
[[nodiscard]] std::string short_name(const std::string& name);

// What a long shown name has around a place in it, in characters.
[[nodiscard]] std::string around(const std::string& name, std::size_t place);

}  // namespace gpuprof::graph_text
