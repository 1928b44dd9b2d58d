#include "ranges/limits.hpp"

#include <array>
#include <cstdio>
#include <memory>
#include <mutex>

#include "driver/process.hpp"
#include "trace/writer.hpp"

namespace gpuprof::ranges {

using timing::Sample;

namespace {

struct Limit {
  std::uint32_t recorder;
  std::uint32_t generation;  // of the process that has it
  std::string scope;
  double ms;

  [[nodiscard]] bool is_of(const timing::Path& path) const noexcept {
    return generation == driver::fork_generation() && (scope == path.text || scope == path.name);
  }
};

// A list is never changed or deleted, so that a sample needs no lock: a new one takes its place.
struct Limits {
  std::vector<Limit> all;
  const Limits* before = nullptr;
};

struct Newest {
  driver::ForkMutex mutex;  // of who makes a new one
  std::atomic<const Limits*> limits{new Limits};
};

Newest& newest() { return driver::immortal<Newest>(); }

void dump_for(const Limit& limit, const Sample& sample, double ms, bool is_gpu) {
  const std::shared_ptr<trace::FlightRecorder> recorder = trace::find_recorder(limit.recorder);
  if (!recorder) return;
  std::array<char, 96> told{};
  std::snprintf(told.data(), told.size(), " took %.6g ms%s, more than %.6g ms", ms,
                is_gpu ? " of GPU time" : "", limit.ms);
  recorder->dump_for_limit(sample.path->text + told.data());
}

void check_one(const Sample& sample) {
  if (sample.load_status() != timing::SampleStatus::kDone || !sample.counted ||
      sample.path == nullptr) {
    return;
  }
  const bool is_gpu = sample.clock == timing::kCudaClock;
  const double ms = is_gpu ? sample.device_ms : sample.host_ms();
  for (const Limit& limit : newest().limits.load(std::memory_order_acquire)->all) {
    if (ms > limit.ms && limit.is_of(*sample.path)) dump_for(limit, sample, ms, is_gpu);
  }
}

}  // namespace

void set_limits(std::uint32_t recorder, const ScopeLimits& of_scopes) {
  const std::uint32_t generation = driver::fork_generation();
  auto made = std::make_unique<Limits>();
  for (const auto& [scope, ms] : of_scopes) {
    made->all.push_back({recorder, generation, timing::shortened_path(scope), ms});
  }
  Newest& n = newest();
  const std::lock_guard lock(n.mutex);
  made->before = n.limits.load(std::memory_order_relaxed);
  for (const Limit& limit : made->before->all) {
    if (limit.generation == generation && limit.recorder != recorder) made->all.push_back(limit);
  }
  limits_are_set.store(!made->all.empty(), std::memory_order_relaxed);
  n.limits.store(made.release(), std::memory_order_release);
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
