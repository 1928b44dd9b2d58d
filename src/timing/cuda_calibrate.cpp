// What an empty interval reads, idle and behind a gate: the floor under every measured time.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "driver/cuda_events.hpp"
#include "driver/cuda_thread_state.hpp"
#include "timing/cuda_gate_word.hpp"
#include "timing/device.hpp"

namespace gpuprof::timing::device {

using driver::check;
using driver::Table;

namespace {

constexpr int kPairs = 256;  // well under the 1,020 entries after which a queue blocks

// A private non-blocking stream and `kPairs` event pairs on a device's primary context.
class Bench {
 public:
  Bench(const Table& table, int ordinal) : table_(table) {
    check(table.cuDeviceGet(&device_, ordinal), "cuDeviceGet");
    check(table.cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
    if (const CUresult told = table.cuCtxGetId(context_, &id_); told != CUDA_SUCCESS) {
      table.cuDevicePrimaryCtxRelease(device_);
      check(told, "cuCtxGetId");
    }
    try {
      current_.emplace(table, context_);
      check(table.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
      events_.resize(std::size_t{kPairs} * 2);
      for (CUevent& event : events_) {
        check(table.cuEventCreate(&event, CU_EVENT_DEFAULT), "cuEventCreate");
      }
    } catch (...) {
      close();
      throw;
    }
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() { close(); }

  [[nodiscard]] CUstream stream() const noexcept { return stream_; }

  void record_pair(int index) {
    const driver::EventAccess events = access();
    check(events.record(events_[at(index, 0)], stream_), "cuEventRecord");
    check(events.record(events_[at(index, 1)], stream_), "cuEventRecord");
  }

  void wait(int index) {
    const driver::RelaxedCapture relaxed(table_);
    for (;;) {
      const CUresult status = access().query(events_[at(index, 1)]);
      if (status == CUDA_SUCCESS) return;
      if (status != CUDA_ERROR_NOT_READY) check(status, "cuEventQuery");
    }
  }

  [[nodiscard]] double elapsed_ns(int index) const {
    float ms = 0.0F;
    check(access().elapsed(ms, events_[at(index, 0)], events_[at(index, 1)]), "cuEventElapsedTime");
    return std::round(static_cast<double>(ms) * 1e6);
  }

 private:
  static std::size_t at(int index, int which) noexcept {
    return static_cast<std::size_t>(index) * 2 + static_cast<std::size_t>(which);
  }

  [[nodiscard]] driver::EventAccess access() const {
    if (const auto access = driver::EventAccess::ask(table_, context_, id_)) return *access;
    driver::throw_if_blocked();
    throw driver::error_of(CUDA_ERROR_CONTEXT_IS_DESTROYED, "cuCtxGetId");
  }

  void close() noexcept {
    const auto access = driver::EventAccess::ask(table_, context_, id_);
    if (!access) return;
    for (CUevent event : events_) {
      if (event != nullptr) access->destroy(event);
    }
    if (stream_ != nullptr) table_.cuStreamDestroy(stream_);
    current_.reset();
    table_.cuDevicePrimaryCtxRelease(device_);
  }

  const Table& table_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  unsigned long long id_ = 0;
  CUstream stream_ = nullptr;
  std::vector<CUevent> events_;
  std::optional<driver::CurrentContext> current_;
};

std::vector<double> idle_pairs(Bench& bench) {
  std::vector<double> readings;
  for (int i = 0; i < kPairs; ++i) {
    bench.record_pair(i);
    bench.wait(i);
    readings.push_back(bench.elapsed_ns(i));
  }
  return readings;
}

std::vector<double> queued_pairs(Bench& bench, CudaGateWord& gate) {
  try {
    gate.hold(bench.stream(), 1);
    for (int i = 0; i < kPairs; ++i) bench.record_pair(i);
  } catch (...) {
    gate.reach(1);
    throw;
  }
  gate.reach(1);
  bench.wait(kPairs - 1);
  std::vector<double> readings;
  readings.reserve(kPairs);
  for (int i = 0; i < kPairs; ++i) readings.push_back(bench.elapsed_ns(i));
  return readings;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Calibration calibrate(int ordinal) {
  const Table& table = driver::ready();
  Bench bench(table, ordinal);
  Calibration result;
  result.device = ordinal;
  result.pairs = kPairs;
  idle_pairs(bench);  // the first ones load and grow things
  std::vector<double> readings = idle_pairs(bench);
  result.idle_ns = median(readings);
  result.queued_ns = std::numeric_limits<double>::quiet_NaN();
  try {
    CudaGateWord gate(table);
    const std::vector<double> queued = queued_pairs(bench, gate);
    result.queued_ns = median(queued);
    readings.insert(readings.end(), queued.begin(), queued.end());
  } catch (const driver::Error& error) {
    if (error.code() != CUDA_ERROR_NOT_SUPPORTED && error.code() != CUDA_ERROR_NOT_FOUND) throw;
  }
  std::int64_t tick = 0;
  for (const double reading : readings) tick = std::gcd(tick, static_cast<std::int64_t>(reading));
  result.tick_ns = static_cast<double>(tick);
  return result;
}

}  // namespace gpuprof::timing::device
