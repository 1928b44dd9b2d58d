// What an empty interval reads, idle and behind a gate: the floor under every measured time.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "driver/cuda_thread_state.hpp"
#include "timing/cuda_contexts.hpp"
#include "timing/cuda_gate_word.hpp"
#include "timing/device.hpp"

namespace gpuprof::timing::device {

using driver::check;
using driver::Table;

namespace {

constexpr std::size_t kPairs = 256;  // well under the 1,020 entries after which a queue blocks

// A private non-blocking stream on a device's primary context, and `kPairs` event pairs.
class Bench {
 public:
  Bench(const Table& table, int ordinal)
      : table_(table), clock_(contexts::make_primary(table, ordinal)) {
    try {
      current_.emplace(table, clock_->context());
      check(table.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
      for (EventPair& pair : pairs_) static_cast<void>(clock_->take(pair));  // it has some
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
    const driver::EventAccess events = clock_->access();
    check(events.record(pairs_[index].start, stream_), "cuEventRecord");
    check(events.record(pairs_[index].end, stream_), "cuEventRecord");
  }

  void wait(std::size_t index) {
    const driver::RelaxedCapture relaxed(table_);
    for (;;) {
      const CUresult status = clock_->access().query(pairs_[index].end);
      if (status == CUDA_SUCCESS) return;
      if (status != CUDA_ERROR_NOT_READY) check(status, "cuEventQuery");
    }
  }

  [[nodiscard]] double elapsed_ns(std::size_t index) {
    float ms = 0.0F;
    const EventPair& pair = pairs_[index];
    check(clock_->access().elapsed(ms, pair.start, pair.end), "cuEventElapsedTime");
    return std::round(static_cast<double>(ms) * 1e6);
  }

 private:
  void close() noexcept {
    if (!clock_->check_alive()) return;
    for (const EventPair& pair : pairs_) {
      if (pair.start != nullptr) clock_->give_back(pair);
    }
    clock_->destroy_idle();
    if (stream_ != nullptr) table_.cuStreamDestroy(stream_);
    current_.reset();
    table_.cuDevicePrimaryCtxRelease(clock_->ordinal());
  }

  const Table& table_;
  const std::unique_ptr<EventClock> clock_;
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
