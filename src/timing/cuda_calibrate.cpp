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
#include "timing/cuda_event_clock.hpp"
#include "timing/cuda_gate_word.hpp"
#include "timing/device.hpp"

namespace gpuprof::timing::device {

using driver::check;
using driver::Table;

namespace {

constexpr std::size_t kPairs = 256;  // well under the 1,020 entries after which a queue blocks

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
      for (EventPair& pair : pairs_) {
        check(table.cuEventCreate(&pair.start, CU_EVENT_DEFAULT), "cuEventCreate");
        check(table.cuEventCreate(&pair.end, CU_EVENT_DEFAULT), "cuEventCreate");
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

  void record_pair(std::size_t index) {
    const driver::EventAccess events = access();
    check(events.record(pairs_[index].start, stream_), "cuEventRecord");
    check(events.record(pairs_[index].end, stream_), "cuEventRecord");
  }

  void wait(std::size_t index) {
    const driver::RelaxedCapture relaxed(table_);
    for (;;) {
      const CUresult status = access().query(pairs_[index].end);
      if (status == CUDA_SUCCESS) return;
      if (status != CUDA_ERROR_NOT_READY) check(status, "cuEventQuery");
    }
  }

  [[nodiscard]] double elapsed_ns(std::size_t index) const {
    float ms = 0.0F;
    check(access().elapsed(ms, pairs_[index].start, pairs_[index].end), "cuEventElapsedTime");
    return std::round(static_cast<double>(ms) * 1e6);
  }

 private:
  [[nodiscard]] driver::EventAccess access() const {
    if (const auto access = driver::EventAccess::ask(table_, context_, id_)) return *access;
    driver::throw_if_blocked();
    throw driver::error_of(CUDA_ERROR_CONTEXT_IS_DESTROYED, "cuCtxGetId");
  }

  void close() noexcept {
    const auto access = driver::EventAccess::ask(table_, context_, id_);
    if (!access) return;
    for (const EventPair& pair : pairs_) {
      if (pair.start != nullptr) access->destroy(pair.start);
      if (pair.end != nullptr) access->destroy(pair.end);
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
  std::vector<EventPair> pairs_ = std::vector<EventPair>(kPairs);
  std::optional<driver::CurrentContext> current_;
};

std::vector<double> idle_pairs(Bench& bench) {
  std::vector<double> readings;
  for (std::size_t i = 0; i < kPairs; ++i) {
    bench.record_pair(i);
    bench.wait(i);
    readings.push_back(bench.elapsed_ns(i));
  }
  return readings;
}

std::vector<double> queued_pairs(Bench& bench, CudaGateWord& gate) {
  try {
    gate.hold(bench.stream(), 1);
    for (std::size_t i = 0; i < kPairs; ++i) bench.record_pair(i);
  } catch (...) {
    gate.reach(1);
    throw;
  }
  gate.reach(1);
  bench.wait(kPairs - 1);
  std::vector<double> readings;
  readings.reserve(kPairs);
  for (std::size_t i = 0; i < kPairs; ++i) readings.push_back(bench.elapsed_ns(i));
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
  result.pairs = static_cast<int>(kPairs);
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
