#include "api/environment.hpp"

#include <cstdlib>
#include <exception>
#include <string_view>

#include "api/ranges.hpp"
#include "driver/environment.hpp"
#include "gpuprof/switches.hpp"
#include "gpuprof/version.hpp"
#include "timing/scope.hpp"

namespace gpuprof {
namespace {

void read_nvtx() noexcept {
  const char* text = std::getenv("GPUPROF_NVTX");
  if (text == nullptr) return;
  try {
    const bool on =
        std::string_view(text) == "auto" ? api::tool_listens() : driver::is_set("GPUPROF_NVTX");
    api::nvtx_on.store(on, std::memory_order_relaxed);
  } catch (const std::exception&) {  // out of memory: NVTX stays off
  }
}

// Whether GPUPROF_DISABLE has timing off for the whole run.
bool is_disabled_for_good() noexcept {
  static const bool disabled = driver::is_set("GPUPROF_DISABLE");
  return disabled;
}

}  // namespace

bool api::read_environment() noexcept {
  static const bool read = [] {
    if (is_disabled_for_good()) {
      timing::scope::enabled.store(false, std::memory_order_relaxed);
    } else {
      read_nvtx();
    }
    return true;
  }();
  return read;
}

}  // namespace gpuprof

GPUPROF_BEGIN_NAMESPACE

void enable() noexcept {
  if (is_disabled_for_good()) return;
  timing::scope::enabled.store(true, std::memory_order_relaxed);
}

void disable() noexcept { timing::scope::enabled.store(false, std::memory_order_relaxed); }

bool is_enabled() noexcept { return timing::scope::enabled.load(std::memory_order_relaxed); }

const char* version() noexcept { return GPUPROF_VERSION_STRING; }

GPUPROF_END_NAMESPACE
