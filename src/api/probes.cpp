#include "gpuprof/probes.hpp"

#include <exception>

#include "gpuprof/switches.hpp"
#include "timing/device.hpp"
#include "timing/scope.hpp"
#include "timing/timer.hpp"
#include "trace/recorder.hpp"

GPUPROF_BEGIN_NAMESPACE
namespace {

timing::ClockId clock_of(Clock clock, bool has_stream) {
  const bool on_gpu =
      clock == Clock::kCuda ||
      (clock == Clock::kAuto &&
       (timing::scope::cuda_in_use() || (has_stream && timing::device::initialised_in_process())));
  if (clock == Clock::kCuda) timing::device::require();
  return on_gpu ? timing::kCudaClock : timing::kCpuClock;
}

}  // namespace

Timer::Timer(Clock clock) : impl_(std::make_unique<timing::Timer>(clock_of(clock, false))) {}

Timer::Timer(Stream stream)
    : impl_(std::make_unique<timing::Timer>(clock_of(Clock::kAuto, true))), stream_(stream) {}

Timer::Timer(Timer&&) noexcept = default;
Timer& Timer::operator=(Timer&&) noexcept = default;
Timer::~Timer() = default;

void Timer::start() { start(stream_); }
void Timer::start(Stream stream) { impl_->start(stream.handle(), /*ordinal=*/0); }
void Timer::stop() { impl_->stop(); }
void Timer::stop(Stream stream) { impl_->stop(stream.handle()); }

double Timer::elapsed_ms() {
  double ms = 0.0;
  while (!impl_->read(timing::kNoDeadline, ms)) {
    timing::pause_briefly();
  }
  return ms;
}

bool Timer::ready() { return impl_->ready(); }

Clock Timer::clock() const noexcept {
  return impl_->clock() == timing::kCudaClock ? Clock::kCuda : Clock::kCpu;
}

std::optional<Timer> start_probe_timer_if(bool enabled, Stream stream) {
  if (!enabled || !is_enabled()) return std::nullopt;
  Timer timer(stream);
  timer.start();
  return timer;
}

std::optional<Timer> start_probe_timer_if(bool enabled, Clock clock) {
  if (!enabled || !is_enabled()) return std::nullopt;
  Timer timer(clock);
  timer.start();
  return timer;
}

std::optional<double> finish_probe_timer(std::optional<Timer> probe) {
  if (!probe) return std::nullopt;
  probe->stop();
  return probe->elapsed_ms() * 1000.0;
}

std::optional<double> finish_probe_timer(std::optional<Timer> probe, Stream stream) {
  if (!probe) return std::nullopt;
  probe->stop(stream);
  return probe->elapsed_ms() * 1000.0;
}

std::optional<double> finish_probe_timer_traced(std::optional<Timer> probe, std::string_view name,
                                                std::string_view category, unsigned tid) {
  const std::optional<double> us = finish_probe_timer(std::move(probe));
  if (!us || !trace::is_recording()) return us;
  trace::Event event;
  event.depth = trace::kUnknownDepth;
  event.tid = tid;
  event.end = driver::host_now();
  event.begin = event.end - static_cast<driver::HostNanoseconds>(*us * 1000.0);
  try {
    trace::note(event, name, category, {});
  } catch (const std::exception&) {  // out of memory: the trace has one slice less
  }
  return us;
}

GPUPROF_END_NAMESPACE
