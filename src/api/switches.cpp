#include "gpuprof/switches.hpp"

#include <cstdlib>

#include "gpuprof/version.hpp"
#include "timing/scope.hpp"

namespace gpuprof {
namespace {

// Read once: whether timing is off for the whole run.
bool is_disabled_for_good() noexcept {
  static const bool disabled = [] {
    const char* text = std::getenv("GPUPROF_DISABLE");
    return text != nullptr && *text != '\0' && !(text[0] == '0' && text[1] == '\0');
  }();
  return disabled;
}

// Before main, so that the hot path looks at one switch.
const bool environment_is_read = [] {
  if (is_disabled_for_good()) timing::scope::enabled = false;
  return true;
}();

}  // namespace

void enable() noexcept {
  if (!is_disabled_for_good()) timing::scope::enabled.store(true, std::memory_order_relaxed);
}

void disable() noexcept { timing::scope::enabled.store(false, std::memory_order_relaxed); }

bool is_enabled() noexcept { return timing::scope::enabled.load(std::memory_order_relaxed); }

const char* version() noexcept { return GPUPROF_VERSION_STRING; }

}  // namespace gpuprof
