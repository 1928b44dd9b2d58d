// The device interfaces of timing/ in a build without CUDA's headers: there is no device.
#include "timing/device.hpp"
#include "timing/gate.hpp"
#include "timing/l2_flush_buffer.hpp"
#include "timing/single_event.hpp"
#include "timing/slow_streams.hpp"
#include "timing/timeline.hpp"

namespace gpuprof::timing::device {
namespace {

[[noreturn]] void unavailable() {
  throw driver::Error(
      driver::ErrorKind::kUnavailable,
      "this build of gpuprof has no CUDA support: CUDA's headers were not there when "
      "it was built");
}

}  // namespace

void require() { unavailable(); }
bool current_on_this_thread() noexcept { return false; }
bool initialised_in_process() noexcept { return false; }
bool poisoned() noexcept { return false; }
bool forked() noexcept { return false; }
int ordinal_of(const EventClock* /*clock*/) noexcept { return -1; }
void begin(Sample& sample, bool /*in_capture*/, int /*ordinal*/) noexcept {
  sample.finish(SampleStatus::kFailed);
}
bool end(Sample& /*sample*/, std::uintptr_t /*stream*/) noexcept { return false; }
void leave_capture(const Sample& /*sample*/) noexcept {}
bool may_end_on(const Sample& /*sample*/, std::uintptr_t /*stream*/) { return true; }
double end_and_wait_for_all(Sample& /*sample*/) { unavailable(); }
bool is_one_of_the_slow(std::uintptr_t /*stream*/) noexcept { return false; }
void note_queue_time(std::uintptr_t /*stream*/, HostNanoseconds /*took*/) noexcept {}
void drain() noexcept {}
bool wait(Sample& /*sample*/, HostNanoseconds /*until*/) noexcept { return true; }
bool read_captured(const Sample& /*sample*/, double& /*ms*/) { unavailable(); }
std::vector<SampleRef> pending_tails() { return {}; }
std::vector<PendingCount> pending_counts() { return {}; }
void forget_events(Sample& /*sample*/) noexcept {}
std::size_t release_idle() noexcept { return 0; }
void synchronize(std::uintptr_t /*stream*/, int /*ordinal*/) { unavailable(); }
std::uint64_t stream_id(std::uintptr_t /*stream*/) { return 0; }
Calibration calibrate(int /*ordinal*/) { unavailable(); }

}  // namespace gpuprof::timing::device

namespace gpuprof::timing {

namespace timeline {

void want(bool /*on*/) noexcept {}
void refresh() noexcept {}
Placement place(const GpuMark& /*mark*/, HostMoment& /*moment*/) noexcept {
  return Placement::kLost;
}

}  // namespace timeline

void SingleEvent::give_back() noexcept {}
void SingleEvent::record(std::uintptr_t /*stream*/, int /*ordinal*/) { device::require(); }
bool SingleEvent::is_reached() const { return true; }
bool SingleEvent::wait(HostNanoseconds /*until*/) const { return true; }
void SingleEvent::let_wait(std::uintptr_t /*stream*/, int /*ordinal*/) const {}
double SingleEvent::elapsed_ms(const SingleEvent& /*end*/) const {
  device::require();
  return 0.0;
}

DeviceBuffer::DeviceBuffer(std::size_t /*bytes*/) { device::require(); }
DeviceBuffer::~DeviceBuffer() = default;
void DeviceBuffer::fill(int /*repeats*/, std::uintptr_t /*stream*/) {}
void DeviceBuffer::copy(int /*repeats*/, std::uintptr_t /*stream*/) {}

struct Gate::Parts {};
Gate::Gate(std::uintptr_t /*stream*/, int /*ordinal*/) { device::require(); }
Gate::~Gate() = default;
void Gate::close(HostNanoseconds /*limit*/) { device::require(); }
bool Gate::open() noexcept { return false; }
bool Gate::closed() const noexcept { return false; }

}  // namespace gpuprof::timing
