#include "ranges/limits.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <mutex>

#include "driver/process.hpp"
#include "trace/writer.hpp"

namespace gpuprof::ranges {

using timing::Sample;

namespace {

constexpr float kNotKnown = -1.0F;
constexpr float kNoLimit = std::numeric_limits<float>::infinity();

struct Limit {
  std::uint32_t recorder;
  std::uint32_t generation;  // of the process that has it
  std::string scope;
  double ms;

  [[nodiscard]] bool is_of(const timing::Path& path) const noexcept {
    return generation == driver::fork_generation() && (scope == path.text || scope == path.name);
  }
};

struct Limits {
  driver::ForkMutex mutex;
  std::vector<Limit> all;
};

// The smallest one of each path, by its order, so that a sample within its limit needs no lock. A
// float is rounded down, which the exact comparison puts right.
std::array<std::atomic<float>, timing::kMaxPaths> smallest_limit{};

Limits& limits() { return driver::immortal<Limits>(); }

float smallest_of(const timing::Path& path) {
  const bool has_place = path.order < smallest_limit.size();
  if (has_place) {
    const float known = smallest_limit[path.order].load(std::memory_order_relaxed);
    if (known != kNotKnown) return known;
  }
  Limits& l = limits();
  const std::lock_guard lock(l.mutex);
  float least = kNoLimit;
  for (const Limit& limit : l.all) {
    if (limit.is_of(path)) {
      least = std::min(least, std::nextafter(static_cast<float>(limit.ms), 0.0F));
    }
  }
  if (has_place) smallest_limit[path.order].store(least, std::memory_order_relaxed);
  return least;
}

struct Passed {
  std::uint32_t recorder;
  double limit;
};

std::vector<Passed> passed_by(const timing::Path& path, double ms) {
  std::vector<Passed> passed;
  Limits& l = limits();
  const std::lock_guard lock(l.mutex);
  for (const Limit& limit : l.all) {
    if (limit.is_of(path) && ms > limit.ms) passed.push_back({limit.recorder, limit.ms});
  }
  return passed;
}

void check_one(const Sample& sample) {
  if (sample.load_status() != timing::SampleStatus::kDone || !sample.counted ||
      sample.path == nullptr) {
    return;
  }
  const bool is_gpu = sample.clock == timing::kCudaClock;
  const double ms = is_gpu ? sample.device_ms : sample.host_ms();
  if (!(ms > static_cast<double>(smallest_of(*sample.path)))) return;
  for (const Passed& each : passed_by(*sample.path, ms)) {
    const std::shared_ptr<trace::FlightRecorder> recorder = trace::find_recorder(each.recorder);
    if (!recorder) continue;
    std::array<char, 96> told{};
    std::snprintf(told.data(), told.size(), " took %.6g ms%s, more than %.6g ms", ms,
                  is_gpu ? " of GPU time" : "", each.limit);
    recorder->dump_for_limit(sample.path->text + told.data());
  }
}

}  // namespace

void set_limits(std::uint32_t recorder, const ScopeLimits& of_scopes) {
  Limits& l = limits();
  const std::uint32_t generation = driver::fork_generation();
  const std::lock_guard lock(l.mutex);
  l.all.erase(std::remove_if(l.all.begin(), l.all.end(),
                             [&](const Limit& limit) {
                               return limit.generation != generation || limit.recorder == recorder;
                             }),
              l.all.end());
  for (const auto& [scope, ms] : of_scopes) {
    l.all.push_back({recorder, generation, timing::shortened_path(scope), ms});
  }
  for (std::atomic<float>& each : smallest_limit) each.store(kNotKnown, std::memory_order_relaxed);
  limits_are_set.store(!l.all.empty(), std::memory_order_relaxed);
}

void check_limits(const Sample* const* samples, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    try {
      check_one(*samples[i]);
    } catch (const std::exception&) {  // out of memory: no dump
    }
  }
}

}  // namespace gpuprof::ranges
