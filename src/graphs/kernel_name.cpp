#include <cxxabi.h>

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "graphs/nodes.hpp"

namespace gpuprof::graphs {
namespace {

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

}  // namespace gpuprof::graphs
