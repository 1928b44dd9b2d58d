#include "bindings/ranges/started_ranges.hpp"

#include <string>
#include <unordered_map>
#include <utility>

#include "bindings/ranges/listeners.hpp"
#include "bindings/ranges/scope_events.hpp"
#include "driver/error.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::bindings::started_ranges {
namespace {

struct Started {
  std::shared_ptr<RangeAttributes> face;
  bool in_nvtx = false;
  std::uint64_t nvtx_number = 0;
  driver::HostNanoseconds begin = 0;  // 0: no trace recorded then
  std::uint32_t tid = 0;
};

using Ranges = std::unordered_map<std::uint64_t, Started>;

Ranges& ranges() {
  static Ranges& storage = *new Ranges;
  return storage;
}

std::uint64_t last_number = 0;

}  // namespace

std::uint64_t start(const std::shared_ptr<RangeAttributes>& face) {
  const bool to_nvtx = listens(kNvtx);
  const bool to_trace = listens(kTrace) && trace_records();
  if (!to_nvtx && !to_trace) return 0;
  if (ranges().size() >= kMaxStarted) {
    driver::warn_once(driver::Warning::kForeignRange,
                      "gpuprof: " + std::to_string(kMaxStarted) +
                          " ranges are started and not ended; no more are started until some end");
    return 0;
  }
  Started& range = ranges()[last_number + 1];
  ++last_number;
  range.face = face;
  if (to_nvtx) {
    range.nvtx_number = face->range().start();
    range.in_nvtx = true;
  }
  if (to_trace) {
    name_this_thread();
    range.tid = trace::thread_id();
    range.begin = driver::host_now();
  }
  return last_number;
}

bool end(std::uint64_t number) {
  const auto found = ranges().find(number);
  if (found == ranges().end()) return false;
  const Started range = std::move(found->second);
  ranges().erase(found);
  const bool traced = range.begin != 0 && listens(kTrace) && trace_records();
  const driver::HostNanoseconds now = traced ? driver::host_now() : 0;
  if (range.in_nvtx) nvtx::end(range.face->range().domain(), range.nvtx_number);
  if (traced) range.face->trace(trace::Kind::kAsync, range.begin, now, 0, range.tid);
  return true;
}

bool is_in_nvtx(std::uint64_t number) noexcept {
  const auto found = ranges().find(number);
  return found != ranges().end() && found->second.in_nvtx;
}

}  // namespace gpuprof::bindings::started_ranges
