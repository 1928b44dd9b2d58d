#include "timing/scope.hpp"

#include "driver/process.hpp"
#include "timing/device.hpp"
#include "timing/statistics.hpp"

namespace gpuprof::timing::scope {
namespace {

constexpr HostNanoseconds kLookEvery = 1'000'000;

std::atomic<bool> cuda_seen{false};
std::atomic<HostNanoseconds> next_look{0};

bool in_use_at(HostNanoseconds now) noexcept {
  if (!cuda_seen.load(std::memory_order_relaxed)) {
    if (now < next_look.load(std::memory_order_relaxed)) return false;
    next_look.store(now + kLookEvery, std::memory_order_relaxed);
    if (!device::initialised_in_process()) return false;
    cuda_seen.store(true, std::memory_order_relaxed);
  }
  return device::current_on_this_thread();
}

}  // namespace

bool cuda_in_use() noexcept {
  if (device::poisoned()) return true;
  return in_use_at(cuda_seen.load(std::memory_order_relaxed) ? 0 : host_now());
}

void open_cuda(Sample& sample, bool in_capture, int ordinal) noexcept {
  sample.clock = kCudaClock;
  sample.epoch = statistics::epoch();
  device::begin(sample, in_capture, ordinal);
}

void open_host(Sample& sample, HostNanoseconds now) noexcept {
  sample.epoch = statistics::epoch();
  sample.host_begin = now;
}

void close_cuda(Sample& sample) noexcept {
  if (sample.load_status() != SampleStatus::kOpen) {  // begin() left it final
    if (sample.labels_nodes) device::leave_capture(sample);
    sample.host_end = host_now();
    deliver(&sample);
    return;
  }
  if (device::end(sample)) return;
  if (sample.load_status() != SampleStatus::kCaptured) deliver(&sample);
}

void close_host(Sample& sample, HostNanoseconds now, bool watch_cuda) noexcept {
  sample.host_end = now;
  if (watch_cuda && in_use_at(now)) sample.device_started = true;
  sample.finish(SampleStatus::kDone);
  deliver(&sample);
}

void abandon(Sample& sample) noexcept {
  sample.host_end = host_now();
  sample.finish(SampleStatus::kFailed);
  deliver(&sample);
}

}  // namespace gpuprof::timing::scope
