#include "driver/error.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <utility>

#include "driver/process.hpp"

namespace gpuprof {
namespace {

std::string compose(int code, const std::string& name, const std::string& call,
                    const std::string& detail) {
  std::string text = call + " failed: " + name + " (" + std::to_string(code) + ")";
  if (!detail.empty()) text += ": " + detail;
  return text;
}

}  // namespace

Error::Error(int code, std::string name, std::string call, std::string detail)
    : std::runtime_error(compose(code, name, call, detail)),
      kind_(ErrorKind::kCuda),
      code_(code),
      name_(std::move(name)),
      call_(std::move(call)),
      detail_(std::move(detail)) {}

}  // namespace gpuprof

namespace gpuprof::driver {
namespace {

struct Warnings {
  ForkMutex mutex;
  std::array<bool, static_cast<std::size_t>(Warning::kCount)> said{};
  std::vector<std::string> pending;
};

Warnings& warnings() { return immortal<Warnings>(); }

std::atomic<bool> any_pending{false};

// Unless it was said before; null is never.
void keep(const std::string& message, bool* said) noexcept {
  try {
    auto& w = warnings();
    const std::lock_guard lock(w.mutex);
    if (said != nullptr && *said) return;
    w.pending.push_back(message);
    if (said != nullptr) *said = true;
    any_pending.store(true, std::memory_order_relaxed);
  } catch (...) {  // out of memory: the warning is lost, the program is not
  }
}

}  // namespace

void warn_once(Warning kind, const std::string& message) noexcept {
  keep(message, &warnings().said[static_cast<std::size_t>(kind)]);
}

void warn(const std::string& message) noexcept { keep(message, nullptr); }

bool warnings_pending() noexcept { return any_pending.load(std::memory_order_relaxed); }

std::vector<std::string> take_warnings() {
  auto& w = warnings();
  const std::lock_guard lock(w.mutex);
  any_pending.store(false, std::memory_order_relaxed);
  return std::exchange(w.pending, {});
}

void forget_warnings() noexcept {
  auto& w = warnings();
  const std::lock_guard lock(w.mutex);
  w.said.fill(false);
  w.pending.clear();
  any_pending.store(false, std::memory_order_relaxed);
}

}  // namespace gpuprof::driver
