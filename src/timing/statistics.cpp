#include "timing/statistics.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "driver/process.hpp"

namespace gpuprof::timing::statistics {
namespace {

struct Series {
  double total = 0.0;
  double min = 0.0;
  double max = 0.0;
  double first = 0.0;
  Quantiles quantiles;

  void add(double value) {
    if (quantiles.count() == 0) {
      first = min = max = value;
    } else {
      min = std::min(min, value);
      max = std::max(max, value);
    }
    total += value;
    quantiles.add(value);
  }

  [[nodiscard]] Summary summary(bool with_bins) {
    const std::uint64_t count = quantiles.count();
    if (count == 0) return {};
    // A bin's middle may lie outside of what was measured.
    const auto at = [this](double q) { return std::clamp(quantiles.at(q), min, max); };
    return {count,
            total,
            total / static_cast<double>(count),
            min,
            at(0.5),
            at(0.9),
            at(0.99),
            max,
            first,
            with_bins ? quantiles.bin_counts() : BinCounts{}};
  }
};

struct Counts {
  Series device;
  Series host;
  std::uint64_t dropped = 0;
  std::uint64_t failed = 0;
  std::uint64_t skipped = 0;
  WorkSums work;
  MemorySums memory;
};

struct Key {
  const Path* path;
  ClockId clock;
  bool operator==(const Key& other) const noexcept {
    return path == other.path && clock == other.clock;
  }
};

struct KeyHash {
  std::size_t operator()(const Key& key) const noexcept {
    return std::hash<const void*>{}(key.path) ^ (std::size_t{key.clock} << 1U);
  }
};

struct Registry {
  driver::ForkMutex mutex;
  std::unordered_map<Key, Counts, KeyHash> counts;
  // The row of the sample before: one scope in a loop is the usual case.
  Key last_key{nullptr, 0};
  Counts* last = nullptr;
  std::atomic<std::uint64_t> epoch{1};

  Counts& of(const Sample& sample) {
    const Key key{sample.path, sample.clock};
    if (last == nullptr || !(key == last_key)) {
      last = &counts[key];
      last_key = key;
    }
    return *last;
  }
};

Registry& registry() {
  static Registry& storage = *new Registry;
  return storage;
}
const bool statistics_fork_hook = (registry(), true);  // a child may not make it

void count_details(Counts& counts, const Sample& sample) {
  counts.work.add(*sample.details,
                  sample.clock == kCudaClock ? sample.device_ms : sample.host_ms());
  if (sample.kind == SpanKind::kInsideReplay && sample.details->wants_memory) {
    counts.memory.add({0.0, 0.0, 0.0, MemoryNote::kReplay});
  }
}

void count_one(Counts& counts, const Sample& sample) {
  switch (sample.load_status()) {
    case SampleStatus::kDropped:
      ++counts.dropped;
      break;
    case SampleStatus::kSkipped:
      ++counts.skipped;
      break;
    case SampleStatus::kDone:
      if (sample.body_raised) {
        ++counts.failed;
        break;
      }
      if (sample.clock == kCudaClock) counts.device.add(sample.device_ms);
      counts.host.add(sample.host_ms());
      if (sample.details != nullptr) count_details(counts, sample);
      break;
    default:
      ++counts.failed;
  }
}

}  // namespace

std::uint64_t epoch() noexcept { return registry().epoch.load(std::memory_order_relaxed); }

void add(const Sample* const* samples, std::size_t count) noexcept {
  try {
    auto& r = registry();
    const std::lock_guard lock(r.mutex);
    const std::uint64_t now = r.epoch.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < count; ++i) {
      const Sample& sample = *samples[i];
      if (sample.counted && sample.epoch == now) count_one(r.of(sample), sample);
    }
  } catch (...) {  // out of memory: the sample is lost, the program is not
  }
}

void add_memory(const Sample& sample, const MemoryUse& use) noexcept {
  try {
    auto& r = registry();
    const std::lock_guard lock(r.mutex);
    const bool is_now = sample.epoch == r.epoch.load(std::memory_order_relaxed);
    if (sample.counted && is_now) r.of(sample).memory.add(use);
  } catch (...) {  // out of memory: the figures are lost, the program is not
  }
}

namespace {

// Nothing if the statistics were reset meanwhile.
std::optional<std::vector<Row>> try_rows(bool with_bins) {
  auto& r = registry();
  std::vector<std::pair<Key, const Counts*>> found;
  std::uint64_t began = 0;
  {
    const std::lock_guard lock(r.mutex);
    began = r.epoch.load(std::memory_order_relaxed);
    found.reserve(r.counts.size());
    for (const auto& [key, counts] : r.counts) found.emplace_back(key, &counts);
  }
  std::vector<Row> result;
  result.reserve(found.size());
  Counts copy;  // of one row at a time: each scope takes the lock
  for (const auto& [key, counts] : found) {
    {
      const std::lock_guard lock(r.mutex);
      if (r.epoch.load(std::memory_order_relaxed) != began) return std::nullopt;
      copy = *counts;
    }
    result.push_back({key.path, key.clock, key.clock == kCudaClock, copy.device.summary(with_bins),
                      copy.host.summary(with_bins), copy.dropped, copy.failed, copy.skipped,
                      copy.work, copy.memory});
  }
  std::sort(result.begin(), result.end(), [](const Row& a, const Row& b) {
    return a.path->order != b.path->order ? a.path->order < b.path->order : a.clock < b.clock;
  });
  return result;
}

}  // namespace

std::vector<Row> rows(bool with_bins) {
  for (;;) {
    if (auto found = try_rows(with_bins)) return *std::move(found);
  }
}

void reset() noexcept {
  auto& r = registry();
  const std::lock_guard lock(r.mutex);
  r.counts.clear();
  r.last = nullptr;
  r.epoch.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace gpuprof::timing::statistics
