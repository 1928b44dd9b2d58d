#include "driver/cuda_error_log.hpp"

#include <pthread.h>

#include <algorithm>
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

Log& log_state() { return immortal<Log>(); }

// The lines of the log. A line of the calling thread holds the number that pthread_self() returns.
std::vector<LogLine> lines_of(std::string_view text) {
  const std::string thread = std::to_string(pthread_self());
  std::vector<LogLine> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    line = line.substr(0, line.find_last_not_of(" \r") + 1);
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    if (line.empty()) continue;
    lines.push_back({line.find(thread) != std::string_view::npos, std::string(line)});
  }
  return lines;
}

// This thread's lines, or all of them if it has none.
std::string joined(const std::vector<LogLine>& lines) {
  const bool any_own = std::any_of(lines.begin(), lines.end(), [](const auto& l) { return l.own; });
  std::string picked;
  for (const LogLine& line : lines) {
    if (any_own && !line.own) continue;
    if (!picked.empty()) picked += " | ";
    picked += line.text;
  }
  if (picked.size() > kShownBytes) picked.erase(0, picked.size() - kShownBytes);
  return picked;
}

// The text after `position`, which moves on.
std::string dump(const Table& table, CUlogIterator& position) {
  std::array<char, kLogBytes + 1> text{};
  std::size_t size = kLogBytes;
  if (table.cuLogsDumpToMemory(&position, text.data(), &size, 0) != CUDA_SUCCESS) return {};
  return text.data();
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
    std::string text;
    {
      const std::lock_guard lock(log.mutex);
      if (log.table == nullptr || is_blocked()) return {};
      text = dump(*log.table, log.position);
    }
    return joined(lines_of(text));
  } catch (...) {
    return {};
  }
}

LogPosition log_position(const Table& table) noexcept {
  CUlogIterator position = 0;
  return table.cuLogsCurrent(&position, 0) == CUDA_SUCCESS ? position : 0;
}

std::vector<LogLine> log_since(LogPosition position) noexcept {
  const Table* table = loaded_or_null();
  if (table == nullptr || is_blocked()) return {};
  try {
    CUlogIterator from = position;
    return lines_of(dump(*table, from));
  } catch (...) {  // out of memory: an error without the log
    return {};
  }
}

}  // namespace gpuprof::driver
