#include "timing/sample.hpp"

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "driver/process.hpp"
#include "timing/device.hpp"

namespace gpuprof::timing {
namespace {

constexpr std::size_t kMaxPooled = 8192;
constexpr std::size_t kMaxClocks = 1000;

struct Pool {
  driver::ForkMutex mutex;
  Sample* free = nullptr;
  std::size_t free_count = 0;
  std::atomic<std::uint64_t> in_memory{0};
};

Pool& pool() {
  static Pool& storage = *new Pool;
  return storage;
}

struct Clocks {
  driver::ForkMutex mutex;
  std::vector<std::string> names{"cuda", "cpu"};
};

Clocks& clocks() {
  static Clocks& storage = *new Clocks;
  return storage;
}

void recycle(Sample* sample) noexcept {
  if (sample->start != nullptr) device::forget_events(*sample);
  sample->error.reset();
  auto& p = pool();
  {
    const std::lock_guard lock(p.mutex);
    if (p.free_count < kMaxPooled) {
      sample->next = p.free;
      p.free = sample;
      ++p.free_count;
      return;
    }
  }
  p.in_memory.fetch_sub(1, std::memory_order_relaxed);
  delete sample;
}

}  // namespace

ClockId clock_id(const std::string& name) {
  auto& c = clocks();
  const std::lock_guard lock(c.mutex);
  const auto found = std::find(c.names.begin(), c.names.end(), name);
  if (found != c.names.end()) return static_cast<ClockId>(found - c.names.begin());
  if (c.names.size() >= kMaxClocks) {
    throw std::length_error("more than 1000 different backend names; make a backend once and use it "
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
  } catch (...) {  // out of memory: the sample is failed without words
  }
  finish(SampleStatus::kFailed);
}

Sample* make_sample() {
  auto& p = pool();
  Sample* sample = nullptr;
  {
    const std::lock_guard lock(p.mutex);
    if (p.free != nullptr) {
      sample = p.free;
      p.free = sample->next;
      --p.free_count;
    }
  }
  if (sample == nullptr) {
    sample = new Sample;
    p.in_memory.fetch_add(1, std::memory_order_relaxed);
    return sample;
  }
  sample->~Sample();
  return new (sample) Sample;
}

void add_reference(Sample* sample) noexcept {
  sample->references.fetch_add(1, std::memory_order_relaxed);
}

void drop_reference(Sample* sample) noexcept {
  if (sample->references.fetch_sub(1, std::memory_order_acq_rel) == 1) recycle(sample);
}

std::uint64_t samples_in_memory() noexcept {
  return pool().in_memory.load(std::memory_order_relaxed);
}

}  // namespace gpuprof::timing
