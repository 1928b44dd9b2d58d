#include "gpuprof/timer.hpp"

#include <exception>

#include "api/environment.hpp"
#include "api/ranges.hpp"
#include "api/warnings.hpp"
#include "ranges/sample_events.hpp"
#include "timing/device.hpp"
#include "timing/scope.hpp"
#include "timing/thread_nesting.hpp"
#include "trace/recorder.hpp"

GPUPROF_BEGIN_NAMESPACE
namespace {

const bool timer_environment_is_read = api::read_environment();

bool uses_cuda(bool has_stream, Clock clock) noexcept {
  if (clock != Clock::kAuto) return clock == Clock::kCuda;
  if (has_stream && (timing::device::initialised_in_process() || timing::device::forked())) {
    return true;
  }
  return timing::scope::cuda_in_use();
}

}  // namespace

timer::timer(std::string_view name) noexcept { open(name, {}, false, Clock::kAuto); }

timer::timer(std::string_view name, Stream stream) noexcept {
  open(name, stream, true, Clock::kAuto);
}

timer::timer(std::string_view name, Clock clock) noexcept { open(name, {}, false, clock); }

void timer::open(std::string_view name, Stream stream, bool has_stream, Clock clock) noexcept {
  if (!timing::scope::enabled.load(std::memory_order_relaxed)) return;
  timing::SampleRef sample;
  try {
    nesting_ = timing::ThreadNesting::of_this_thread();
    if (nesting_ == nullptr) return;
    sample = timing::SampleRef(timing::make_sample());
    const auto place = nesting_->enter(this, sample.get(), name);
    sample->path = place.path;
    sample->depth = place.depth;
  } catch (const std::exception&) {  // out of memory: this entry is not measured
    return;
  }
  exceptions_ = std::uncaught_exceptions();
  if (api::nvtx_on.load(std::memory_order_relaxed)) push_range(name);
  sample_ = sample.release();
  if (uses_cuda(has_stream, clock)) {
    sample_->stream = stream.handle();
    timing::scope::open_cuda(*sample_, /*in_capture=*/false, /*ordinal=*/0);
  } else {
    timing::scope::open_host(*sample_, timing::host_now());
  }
}

// Outside of the sample, which must not pay for it.
void timer::push_range(std::string_view name) noexcept {
  range_ = api::range_of(name, {});
  if (range_ == nullptr) return;
  try {
    range_->in_nvtx().push();
    thread_ = trace::thread_id();
  } catch (const std::exception&) {  // out of memory: NVTX lacks it
    range_.reset();
  }
}

// Another thread could only pop a range of its own.
void timer::pop_range() noexcept {
  if (thread_ == trace::thread_id()) range_->pop();
  range_.reset();
}

void timer::close() noexcept {
  const timing::HostNanoseconds now = timing::host_now();
  stopped_ = Sample(sample_);
  timing::Sample& sample = *sample_;
  sample_ = nullptr;
  nesting_->leave(this);
  sample.body_raised = std::uncaught_exceptions() > exceptions_;
  const bool is_traced = trace::is_recording();
  if (is_traced) sample.thread = trace::thread_id();
  if (sample.clock == timing::kCudaClock) {
    timing::scope::close_cuda(sample);
  } else {
    timing::scope::close_host(sample, now, /*watch_cuda=*/true);
  }
  if (range_ != nullptr) pop_range();
  if (is_traced) ranges::trace_host_span(sample, trace::kUnknownDepth, place_.file, place_.line);
  api::emit_pending_warnings();
}

Sample timer::stop() noexcept {
  if (sample_ != nullptr) close();
  return stopped_;
}

Sample timer::sample() const noexcept {
  if (sample_ == nullptr) return stopped_;
  timing::add_reference(sample_);
  return Sample(sample_);
}

GPUPROF_END_NAMESPACE
