#include "timing/sample.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "driver/process.hpp"
#include "timing/device.hpp"
#include "timing/statistics.hpp"

namespace gpuprof::timing {
namespace {

constexpr std::size_t kMaxPooled = 8192;
constexpr std::size_t kMaxClocks = 1000;

// Free samples that any thread may take.
struct Pool {
  driver::ForkMutex mutex;
  Sample* free = nullptr;
  std::size_t free_count = 0;
  std::atomic<std::uint64_t> in_memory{0};

  // Takes up to `wanted` samples; returns them linked.
  Sample* take(std::size_t wanted, std::size_t& taken) {
    const std::lock_guard lock(mutex);
    Sample* first = free;
    Sample* last = nullptr;
    for (taken = 0; taken < wanted && free != nullptr; ++taken) {
      last = free;
      free = free->next;
    }
    free_count -= taken;
    if (last == nullptr) return nullptr;
    last->next = nullptr;
    return first;
  }

  void give(Sample* sample) noexcept {
    {
      const std::lock_guard lock(mutex);
      if (free_count < kMaxPooled) {
        sample->next = free;
        free = sample;
        ++free_count;
        return;
      }
    }
    in_memory.fetch_sub(1, std::memory_order_relaxed);
    delete sample;
  }
};

Pool& pool() { return driver::immortal<Pool>(); }

// The free samples of one thread, so that the usual case takes no lock. Plain, because it is used
// while the thread's locals are destroyed: full then, so that what is freed goes to the pool.
struct Magazine {
  static constexpr std::size_t kMost = 64;
  Sample* free = nullptr;
  std::size_t count = 0;
};
thread_local Magazine magazine;

void give_magazine() noexcept {
  Magazine& own = magazine;
  while (own.free != nullptr) pool().give(std::exchange(own.free, own.free->next));
  own.count = Magazine::kMost;
}
thread_local const driver::AtThreadEnd<give_magazine> magazine_end;

struct Clocks {
  driver::ForkMutex mutex;
  std::vector<std::string> names{"cuda", "cpu"};
};

Clocks& clocks() { return driver::immortal<Clocks>(); }

std::array<std::atomic<Sink>, 4> sinks{&statistics::add, nullptr, nullptr, nullptr};

void recycle(Sample* sample) noexcept {
  if (sample->start != nullptr) device::forget_events(*sample);
  sample->error.reset();
  sample->details.reset();
  Magazine& own = magazine;
  if (own.count >= Magazine::kMost) {
    pool().give(sample);
    return;
  }
  if (own.free == nullptr) magazine_end.touch();
  sample->next = own.free;
  own.free = sample;
  ++own.count;
}

}  // namespace

ClockId clock_id(const std::string& name) {
  auto& c = clocks();
  const std::lock_guard lock(c.mutex);
  const auto found = std::find(c.names.begin(), c.names.end(), name);
  if (found != c.names.end()) return static_cast<ClockId>(found - c.names.begin());
  if (c.names.size() >= kMaxClocks) {
    throw std::length_error(
        "more than 1000 different backend names; make a backend once and use it "
        "again");
  }
  c.names.push_back(name);
  return static_cast<ClockId>(c.names.size() - 1);
}

std::string clock_name(ClockId id) {
  auto& c = clocks();
  const std::lock_guard lock(c.mutex);
  return c.names.at(id);
}

void Sample::fail(const driver::Error& why) noexcept {
  try {
    error = std::make_shared<const driver::Error>(why);
  } catch (...) {  // out of memory: the sample fails without a reason
  }
  finish(SampleStatus::kFailed);
}

Sample* make_sample() {
  Magazine& own = magazine;
  if (own.count == 0) {
    magazine_end.touch();
    own.free = pool().take(Magazine::kMost / 2, own.count);
  }
  if (own.free == nullptr) {
    auto* sample = new Sample;
    pool().in_memory.fetch_add(1, std::memory_order_relaxed);
    return sample;
  }
  Sample* sample = own.free;
  own.free = sample->next;
  --own.count;
  sample->~Sample();
  return new (sample) Sample;
}

void add_reference(Sample* sample) noexcept {
  sample->references.fetch_add(1, std::memory_order_relaxed);
}

void drop_reference(Sample* sample) noexcept {
  if (sample->references.fetch_sub(1, std::memory_order_acq_rel) == 1) recycle(sample);
}

void add_sink(Sink sink) {
  for (auto& place : sinks) {
    Sink empty = nullptr;
    if (place.compare_exchange_strong(empty, sink)) return;
  }
  throw std::length_error("no room for another sink of samples");
}

void deliver(const Sample* const* samples, std::size_t count) noexcept {
  for (const auto& place : sinks) {
    const Sink sink = place.load(std::memory_order_acquire);
    if (sink == nullptr) return;
    sink(samples, count);
  }
}

std::uint64_t samples_in_memory() noexcept {
  return pool().in_memory.load(std::memory_order_relaxed);
}

}  // namespace gpuprof::timing
