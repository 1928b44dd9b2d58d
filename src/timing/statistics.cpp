#include "timing/statistics.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "driver/process.hpp"

namespace gpuprof::timing::statistics {
namespace {

constexpr double kNormal95 = 1.959964;

// Samples that stand for others, too: sums over them, and over the decisions to measure. The error
// of a total follows from those of w (w - 1) n^2, w (w - 1) n x and w (w - 1) x^2, where a decision
// of weight w was for n samples with the sum x.
struct Weighted {
  std::uint64_t count = 0;
  double weight = 0.0;
  double total = 0.0;
  double nn = 0.0;
  double nx = 0.0;
  double xx = 0.0;
  // The decision of the newest sample, which may have further ones.
  std::uint32_t draw = 0;
  double draw_weight = 0.0;
  double draw_n = 0.0;
  double draw_x = 0.0;

  void add(double value, const Sample& sample) noexcept {
    if (sample.draw != draw) {
      close_draw();
      draw = sample.draw;
      draw_weight = sample.weight;
    }
    ++count;
    weight += sample.weight;
    total += sample.weight * value;
    const double part = sample.weight / draw_weight;  // above 1 for one that was chosen once more
    draw_n += part;
    draw_x += part * value;
  }

  void add(Weighted other) noexcept {
    close_draw();
    other.close_draw();
    count += other.count;
    weight += other.weight;
    total += other.total;
    nn += other.nn;
    nx += other.nx;
    xx += other.xx;
  }

  void close_draw() noexcept {
    const double factor = draw_weight * (draw_weight - 1.0);
    nn += factor * draw_n * draw_n;
    nx += factor * draw_n * draw_x;
    xx += factor * draw_x * draw_x;
    draw_weight = draw_n = draw_x = 0.0;
    draw = 0;
  }

  [[nodiscard]] double mean() const noexcept { return total / weight; }

  // Half of the 95 % interval of `visits` times the mean.
  [[nodiscard]] double margin(double visits) noexcept {
    close_draw();
    const double mu = mean();
    const double variance = std::max(0.0, xx - 2.0 * mu * nx + mu * mu * nn);
    return kNormal95 * visits / weight * std::sqrt(variance);
  }
};

struct Series {
  double total = 0.0;  // of the samples that stand for themselves
  double min = 0.0;
  double max = 0.0;
  double first = 0.0;
  HostNanoseconds first_began = 0;  // the span of `first`
  Quantiles quantiles;
  Weighted weighted;

  void add(double value, const Sample& sample) {
    if (quantiles.count() == 0) {
      first = min = max = value;
      first_began = sample.host_begin;
    } else {
      min = std::min(min, value);
      max = std::max(max, value);
    }
    if (sample.weight == 1) {
      total += value;
      quantiles.add(value);
    } else {
      weighted.add(value, sample);
      quantiles.add(value, sample.weight);
    }
  }

  void add(const Series& other) {
    if (other.quantiles.count() == 0) return;
    const bool is_empty = quantiles.count() == 0;
    if (is_empty || other.first_began < first_began) {
      first = other.first;
      first_began = other.first_began;
    }
    min = is_empty ? other.min : std::min(min, other.min);
    max = is_empty ? other.max : std::max(max, other.max);
    total += other.total;
    quantiles.add(other.quantiles);
    weighted.add(other.weighted);
  }

  // `left_out` visits besides those that were measured.
  [[nodiscard]] Summary summary(bool with_bins, std::uint64_t left_out) {
    if (quantiles.count() == 0) return {};
    const auto alone = quantiles.count() - static_cast<std::uint64_t>(weighted.weight);
    const std::uint64_t measured = alone + weighted.count;
    const std::uint64_t count = measured + left_out;
    double margin = 0.0;
    double sum = total;
    if (weighted.count != 0) {
      const auto visits = static_cast<double>(count - alone);
      sum += visits * weighted.mean();
      margin = weighted.margin(visits);
    } else if (left_out != 0) {
      sum += static_cast<double>(left_out) * total / static_cast<double>(alone);
      margin = std::numeric_limits<double>::quiet_NaN();
    }
    // A bin's middle may lie outside of what was measured.
    const auto at = [this](double q) { return std::clamp(quantiles.at(q), min, max); };
    return {count,
            measured,
            margin,
            sum,
            sum / static_cast<double>(count),
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
  std::uint64_t left_out = 0;
  WorkSums work;
  MemorySums memory;

  void add(const Counts& other) {
    device.add(other.device);
    host.add(other.host);
    dropped += other.dropped;
    failed += other.failed;
    skipped += other.skipped;
    left_out += other.left_out;
    work.add(other.work);
    memory.add(other.memory);
  }
};

using Key = std::pair<const Path*, ClockId>;

struct KeyHash {
  std::size_t operator()(const Key& key) const noexcept {
    return std::hash<const void*>{}(key.first) ^ (std::size_t{key.second} << 1U);
  }
};

struct Listed {
  Key key;
  const Counts* counts;
};

// What one thread has counted. A thread that ends leaves it to the next one that begins. Past
// kMostShards threads at once some share one: a fork takes the locks of all.
constexpr std::size_t kMostShards = 32;

struct Shard {
  driver::ForkMutex mutex;  // between the thread, and rows() and reset()
  std::unordered_map<Key, Counts, KeyHash> counts;
  std::vector<Listed> in_order;  // all of them, the oldest first
  std::uint64_t epoch = 0;       // of the counts
  // The row of the sample before: one scope in a loop is the usual case.
  Key last_key{nullptr, 0};
  Counts* last = nullptr;
  std::atomic<bool> taken{true};
  Shard* next = nullptr;

  void forget_before(std::uint64_t now) noexcept {
    if (epoch >= now) return;
    in_order.clear();
    counts.clear();
    last = nullptr;
    epoch = now;
  }

  Counts& of(const Key& key) {
    if (last == nullptr || key != last_key) look_up(key);
    return *last;
  }

  void look_up(const Key& key) {
    // Before the row is made, which must not stay out of the list for lack of memory.
    if (in_order.size() == in_order.capacity()) in_order.reserve(2 * in_order.size() + 8);
    const auto [found, is_new] = counts.try_emplace(key);
    if (is_new) in_order.push_back({key, &found->second});
    last = &found->second;
    last_key = key;
  }
};

struct Registry {
  driver::ForkMutex making;  // and for these two
  std::size_t count = 0;
  Shard* to_share = nullptr;
  std::atomic<Shard*> newest{nullptr};
  std::atomic<std::uint64_t> epoch{1};
};

Registry& registry() { return driver::immortal<Registry>(); }

// Plain, because it is used while the thread's locals are destroyed.
thread_local Shard* own = nullptr;
thread_local bool ended = false;

void leave_shard() noexcept {
  if (own != nullptr) own->taken.store(false, std::memory_order_release);
  own = nullptr;
  ended = true;
}
thread_local const driver::AtThreadEnd<leave_shard> thread_end;

Shard& take_shard() {
  auto& r = registry();
  for (Shard* each = r.newest.load(std::memory_order_acquire); each != nullptr; each = each->next) {
    if (!each->taken.exchange(true, std::memory_order_acquire)) return *each;
  }
  const std::lock_guard lock(r.making);
  if (r.count == kMostShards) {
    r.to_share =
        r.to_share == nullptr || r.to_share->next == nullptr ? r.newest.load() : r.to_share->next;
    return *r.to_share;
  }
  auto* made = new Shard;
  ++r.count;
  made->next = r.newest.load(std::memory_order_relaxed);
  r.newest.store(made, std::memory_order_release);
  return *made;
}

// Calls `count(shard, epoch)` with this thread's shard, locked; after the thread's end with one
// that it takes for a moment.
template <typename Count>
void count_on_this_thread(Count&& count) noexcept {
  Shard* shard = own;
  try {
    if (shard == nullptr) shard = &take_shard();
    if (own == nullptr && !ended) {
      thread_end.touch();
      own = shard;
    }
    const std::lock_guard lock(shard->mutex);
    const std::uint64_t now = epoch();
    shard->forget_before(now);
    count(*shard, now);
  } catch (...) {  // out of memory: what was to be counted is lost, the program is not
  }
  if (shard != own) shard->taken.store(false, std::memory_order_release);
}

// A child has no other threads.
void free_shards_in_child() noexcept {
  for (Shard* each = registry().newest.load(); each != nullptr; each = each->next) {
    each->taken.store(each == own);
  }
}

const bool statistics_fork_hook = (registry(), driver::on_fork_child(free_shards_in_child));

void count_details(Counts& counts, const Sample& sample) {
  counts.work.add(*sample.details, sample.clock == kCudaClock ? sample.device_ms : sample.host_ms(),
                  sample.weight);
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
      if (sample.clock == kCudaClock) counts.device.add(sample.device_ms, sample);
      counts.host.add(sample.host_ms(), sample);
      if (sample.details != nullptr) count_details(counts, sample);
      break;
    default:
      ++counts.failed;
  }
}

}  // namespace

std::uint64_t epoch() noexcept { return registry().epoch.load(std::memory_order_relaxed); }

void add(const Sample* const* samples, std::size_t count) noexcept {
  count_on_this_thread([&](Shard& shard, std::uint64_t now) {
    for (std::size_t i = 0; i < count; ++i) {
      const Sample& sample = *samples[i];
      if (sample.counted && sample.epoch == now)
        count_one(shard.of({sample.path, sample.clock}), sample);
    }
  });
}

void add_left_out(const Path& path, ClockId clock, std::uint64_t count,
                  std::uint64_t raised) noexcept {
  count_on_this_thread([&](Shard& shard, std::uint64_t /*now*/) {
    Counts& counts = shard.of({&path, clock});
    counts.left_out += count;
    counts.failed += raised;
  });
}

void add_memory(const Sample& sample, const MemoryUse& use) noexcept {
  count_on_this_thread([&](Shard& shard, std::uint64_t now) {
    if (sample.counted && sample.epoch == now) {
      shard.of({sample.path, sample.clock}).memory.add(use);
    }
  });
}

namespace {

constexpr std::size_t kAtOnce = 64;  // rows that are listed with a lock held

struct Part {
  Shard* shard;
  const Counts* counts;  // there while the shard has the same epoch
};
using Parts = std::unordered_map<Key, std::vector<Part>, KeyHash>;

// Some of a shard's rows from `begin` on; none where there are no more.
std::vector<Listed> some_rows(Shard& shard, std::uint64_t began, std::size_t begin) {
  std::vector<Listed> some;
  some.reserve(kAtOnce);  // before the lock, for which a scope may wait
  const std::lock_guard lock(shard.mutex);
  const std::size_t end = std::min(begin + kAtOnce, shard.in_order.size());
  for (; shard.epoch == began && begin < end; ++begin) some.push_back(shard.in_order[begin]);
  return some;
}

Parts find_parts(std::uint64_t began) {
  Parts found;
  Shard* shard = registry().newest.load(std::memory_order_acquire);
  for (; shard != nullptr; shard = shard->next) {
    for (std::size_t begin = 0;; begin += kAtOnce) {
      const std::vector<Listed> some = some_rows(*shard, began, begin);
      if (some.empty()) break;
      for (const auto& [key, counts] : some) found[key].push_back({shard, counts});
    }
  }
  return found;
}

// Nothing if the statistics were reset meanwhile.
std::optional<std::vector<Row>> try_rows(bool with_bins) {
  const std::uint64_t began = epoch();
  const Parts found = find_parts(began);
  std::vector<Row> result;
  result.reserve(found.size());
  Counts copy;  // of one row at a time: each scope of its thread takes the lock
  for (const auto& [key, parts] : found) {
    Counts sum;
    for (const auto& [shard, counts] : parts) {
      {
        const std::lock_guard lock(shard->mutex);
        if (shard->epoch != began) return std::nullopt;
        copy = *counts;
      }
      sum.add(copy);
    }
    const auto& [path, clock] = key;
    result.push_back({path, clock, clock == kCudaClock, sum.device.summary(with_bins, sum.left_out),
                      sum.host.summary(with_bins, sum.left_out), sum.dropped, sum.failed,
                      sum.skipped, sum.work, sum.memory});
    if (sum.left_out == 0) continue;
    Row& row = result.back();
    if (row.host.count == 0) {
      row.skipped += sum.left_out;
    } else {  // of as many as there were, not as the samples stand for
      const double share =
          static_cast<double>(row.work.count) / static_cast<double>(sum.host.quantiles.count());
      row.work.count =
          static_cast<std::uint64_t>(std::llround(share * static_cast<double>(row.host.count)));
    }
  }
  if (epoch() != began) return std::nullopt;
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
  const std::uint64_t now = r.epoch.fetch_add(1, std::memory_order_relaxed) + 1;
  for (Shard* each = r.newest.load(std::memory_order_acquire); each != nullptr; each = each->next) {
    const std::lock_guard lock(each->mutex);
    each->forget_before(now);
  }
}

}  // namespace gpuprof::timing::statistics
