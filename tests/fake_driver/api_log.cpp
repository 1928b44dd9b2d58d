// The driver's log of refused calls (12.9 and later).
#include <cstring>

#include "call.hpp"

using namespace fakecuda;

namespace {

std::uint64_t log_end(const State& s) { return s.log_dropped + s.log.size(); }

// As many of the newest lines as fit, oldest first.
std::string newest_lines(const State& s, std::uint64_t from, std::size_t room) {
  std::string text;
  for (std::uint64_t line = log_end(s); line > from && line > s.log_dropped; --line) {
    const std::string& next = s.log[static_cast<std::size_t>(line - 1 - s.log_dropped)];
    if (text.size() + next.size() + 1 > room) break;
    text.insert(0, next + "\n");
  }
  return text;
}

}  // namespace

// Flags that there are not are ignored, as the real driver does.
FAKECUDA_EXPORT Result cuLogsCurrent(unsigned* iterator, unsigned /*flags*/) {
  return call({__func__, InChild::kNotInitialised, false, false}, [&]() -> Result {
    if (iterator == nullptr) return kInvalidValue;
    *iterator = static_cast<unsigned>(log_end(state()));
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuLogsDumpToMemory(unsigned* iterator, char* buffer, std::size_t* size,
                                          unsigned /*flags*/) {
  return call({__func__, InChild::kNotInitialised, false, false}, [&]() -> Result {
    State& s = state();
    if (buffer == nullptr || size == nullptr) return kInvalidValue;
    if (*size == 0) return kSuccess;
    const std::string text = newest_lines(s, iterator != nullptr ? *iterator : 0, *size - 1);
    std::memcpy(buffer, text.c_str(), text.size() + 1);
    *size = text.size();
    if (iterator != nullptr) *iterator = static_cast<unsigned>(log_end(s));
    return kSuccess;
  });
}
