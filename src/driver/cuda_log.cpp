#include "driver/cuda_log.hpp"

#include <pthread.h>

#include <array>
#include <mutex>
#include <string_view>

#include "driver/cuda_table.hpp"

namespace gpuprof::driver {
namespace {

constexpr std::size_t kLogBytes = 25600;  // the driver keeps 100 lines of at most 256 bytes
constexpr std::size_t kShownBytes = 2048;

struct Log {
  ForkMutex mutex;
  const Table* table = nullptr;
  CUlogIterator position = 0;
};

Log& log_state() {
  static Log& storage = *new Log;
  return storage;
}

std::string_view without_spaces(std::string_view line) {
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.remove_suffix(1);
  return line;
}

// The lines of `text` that hold `thread`, or all of them if none does.
std::string pick_lines(std::string_view text, const std::string& thread) {
  std::string own;
  std::string all;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = without_spaces(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    if (line.empty()) continue;
    for (std::string* into : {&all, &own}) {
      if (into == &own && line.find(thread) == std::string_view::npos) continue;
      if (!into->empty()) *into += " | ";
      *into += line;
    }
  }
  std::string picked = own.empty() ? all : own;
  if (picked.size() > kShownBytes) picked.erase(0, picked.size() - kShownBytes);
  return picked;
}

}  // namespace

void start_log(const Table& table) noexcept {
  auto& log = log_state();
  const std::lock_guard lock(log.mutex);
  if (table.cuLogsCurrent(&log.position, 0) == CUDA_SUCCESS) log.table = &table;
}

std::string log_since_last_call() noexcept {
  try {
    auto& log = log_state();
    const std::lock_guard lock(log.mutex);
    if (log.table == nullptr || blocked.load(std::memory_order_relaxed) != 0) return {};
    std::array<char, kLogBytes + 1> text{};
    std::size_t size = kLogBytes;
    if (log.table->cuLogsDumpToMemory(&log.position, text.data(), &size, 0) != CUDA_SUCCESS) {
      return {};
    }
    const std::string_view written(text.data());
    // The driver writes a thread as the number that pthread_self() gives.
    return pick_lines(written, std::to_string(pthread_self()));
  } catch (...) {
    return {};
  }
}

}  // namespace gpuprof::driver
