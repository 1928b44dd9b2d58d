#include "trace/names.hpp"

#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "driver/process.hpp"

namespace gpuprof::trace {
namespace {

enum class NameOf : std::uint8_t { kThread, kStream, kDevice };

using Key = std::pair<std::int64_t, std::uint64_t>;

struct Names {
  driver::ForkMutex mutex;
  std::array<std::map<Key, std::string>, 3> by_kind;
};

Names& names() { return driver::immortal<Names>(); }

void set(NameOf what, std::int64_t first, std::uint64_t second, const std::string& name) noexcept {
  try {
    auto& n = names();
    const std::lock_guard lock(n.mutex);
    auto& of_kind = n.by_kind[static_cast<std::size_t>(what)];
    const Key key{first, second};
    if (of_kind.size() >= kMaxNames && of_kind.count(key) == 0) return;
    of_kind[key] = name;
  } catch (...) {  // out of memory: no name
  }
}

std::string get(NameOf what, std::int64_t first, std::uint64_t second) {
  auto& n = names();
  const std::lock_guard lock(n.mutex);
  const auto& of_kind = n.by_kind[static_cast<std::size_t>(what)];
  const auto found = of_kind.find({first, second});
  return found != of_kind.end() ? found->second : std::string();
}

}  // namespace

void name_thread(std::uint32_t tid, const std::string& name) noexcept {
  set(NameOf::kThread, 0, tid, name);
}
void name_stream(int device, std::uint64_t key, const std::string& name) noexcept {
  set(NameOf::kStream, device, key, name);
}
void name_device(int device, const std::string& name) noexcept {
  set(NameOf::kDevice, device, 0, name);
}

std::string thread_name(std::uint32_t tid) { return get(NameOf::kThread, 0, tid); }
std::string stream_name(int device, std::uint64_t key) { return get(NameOf::kStream, device, key); }
std::string device_name(int device) { return get(NameOf::kDevice, device, 0); }

}  // namespace gpuprof::trace
