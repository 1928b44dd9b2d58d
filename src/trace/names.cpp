#include "trace/names.hpp"

#include <map>
#include <mutex>
#include <utility>

#include "driver/process.hpp"

namespace gpuprof::trace {
namespace {

enum class NameOf : std::uint8_t { kThread, kStream, kDevice };

struct Names {
  driver::ForkMutex mutex;
  std::map<std::pair<NameOf, std::pair<std::int64_t, std::uint64_t>>, std::string> by_object;
};

Names& names() {
  static Names& storage = *new Names;
  return storage;
}

void set(NameOf what, std::int64_t first, std::uint64_t second, const std::string& name) noexcept {
  try {
    auto& n = names();
    const std::lock_guard lock(n.mutex);
    const auto key = std::make_pair(what, std::make_pair(first, second));
    if (n.by_object.size() >= kMaxNames && n.by_object.count(key) == 0) return;
    n.by_object[key] = name;
  } catch (...) {  // out of memory: no name
  }
}

std::string get(NameOf what, std::int64_t first, std::uint64_t second) {
  auto& n = names();
  const std::lock_guard lock(n.mutex);
  const auto found = n.by_object.find({what, {first, second}});
  return found != n.by_object.end() ? found->second : std::string();
}

}  // namespace

void name_thread(std::uint32_t tid, const std::string& name) noexcept {
  set(NameOf::kThread, 0, tid, name);
}
void name_stream(int device, std::uintptr_t stream, const std::string& name) noexcept {
  set(NameOf::kStream, device, stream, name);
}
void name_device(int device, const std::string& name) noexcept {
  set(NameOf::kDevice, device, 0, name);
}

std::string thread_name(std::uint32_t tid) { return get(NameOf::kThread, 0, tid); }
std::string stream_name(int device, std::uintptr_t stream) {
  return get(NameOf::kStream, device, stream);
}
std::string device_name(int device) { return get(NameOf::kDevice, device, 0); }

}  // namespace gpuprof::trace
