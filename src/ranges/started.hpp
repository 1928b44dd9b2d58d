// Ranges that are started and ended, on any threads and in any order, each known by a number.
//
// At most kMostStarted are open at once. What is open at exit is left as it is. `Range` is what a
// range shows: it has start(), which returns NVTX's number, end(number), and trace().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "driver/error.hpp"
#include "driver/process.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::ranges {

inline constexpr std::size_t kMostStarted = 65'536;

template <typename Range>
class StartedRanges {
 public:
  // Starts a range. Its number, or with one warning 0 where there are too many.
  std::uint64_t start(std::shared_ptr<Range> range, bool to_nvtx, bool to_trace) {
    if (is_full()) {
      driver::warn_once(
          driver::Warning::kForeignRange,
          "gpuprof: " + std::to_string(kMostStarted) +
              " ranges are started and not ended; no more are started until some end");
      return 0;
    }
    Started started{std::move(range), to_nvtx};
    if (to_nvtx) started.nvtx_number = started.range->start();  // before the lock: NVTX takes one
    started.tid = trace::thread_id();
    if (to_trace) started.begin = driver::host_now();
    const std::lock_guard lock(mutex_);
    by_number_[last_ + 1] = std::move(started);
    return ++last_;
  }

  // Ends it. False if no range of that number is open; 0 never is.
  bool end(std::uint64_t number, bool to_trace) {
    Started ended;
    {
      const std::lock_guard lock(mutex_);
      const auto found = by_number_.find(number);
      if (found == by_number_.end()) return false;
      ended = std::move(found->second);
      by_number_.erase(found);
    }
    const bool is_traced = to_trace && ended.begin != 0;
    const driver::HostNanoseconds now = is_traced ? driver::host_now() : 0;
    if (ended.in_nvtx) ended.range->end(ended.nvtx_number);
    if (is_traced) ended.range->trace(trace::Kind::kAsync, ended.begin, now, 0, ended.tid);
    return true;
  }

  // Whether NVTX has it.
  [[nodiscard]] bool is_in_nvtx(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    const auto found = by_number_.find(number);
    return found != by_number_.end() && found->second.in_nvtx;
  }

 private:
  struct Started {
    std::shared_ptr<Range> range;
    bool in_nvtx = false;
    std::uint64_t nvtx_number = 0;
    std::uint32_t tid = 0;
    driver::HostNanoseconds begin = 0;  // 0: no trace recorded then
  };

  bool is_full() {
    const std::lock_guard lock(mutex_);
    return by_number_.size() >= kMostStarted;
  }

  driver::ForkMutex mutex_;
  std::unordered_map<std::uint64_t, Started> by_number_;
  std::uint64_t last_ = 0;
};

}  // namespace gpuprof::ranges
