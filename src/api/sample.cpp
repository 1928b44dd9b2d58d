#include "gpuprof/sample.hpp"

#include <limits>

#include "driver/error.hpp"
#include "timing/device.hpp"
#include "timing/sample.hpp"

GPUPROF_BEGIN_NAMESPACE

using driver::refuse;
using timing::SampleStatus;

namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

double captured_ms(const timing::Sample& sample) {
  double ms = 0.0;
  timing::poll_until(timing::kNoDeadline,
                     [&] { return timing::device::read_captured(sample, ms); });
  return ms;
}

}  // namespace

Sample::Sample(const Sample& other) noexcept : impl_(other.impl_) {
  if (impl_ != nullptr) timing::add_reference(impl_);
}

Sample::~Sample() {
  if (impl_ != nullptr) timing::drop_reference(impl_);
}

double Sample::ms() const {
  if (impl_ == nullptr) return kNothing;
  if (impl_->load_status() == SampleStatus::kPending)
    timing::device::wait(*impl_, timing::kNoDeadline);
  switch (impl_->load_status()) {
    case SampleStatus::kDone:
      return impl_->clock == timing::kCudaClock ? impl_->device_ms : impl_->host_ms();
    case SampleStatus::kCaptured:
      return captured_ms(*impl_);
    case SampleStatus::kOpen:
      refuse("the scope '" + path() + "' is still open; ask for its time after its end");
    case SampleStatus::kDropped:
      refuse("nothing was recorded for '" + path() +
             "': too many samples waited for the GPU; call gpuprof::flush() more often");
    case SampleStatus::kSkipped:
      refuse("nothing was recorded for '" + path() + "': its stream was being captured");
    default:
      break;
  }
  if (impl_->error) throw *impl_->error;
  refuse("nothing was measured for '" + path() + "'");
}

bool Sample::ready() const noexcept {
  if (impl_ == nullptr) return true;
  switch (impl_->load_status()) {
    case SampleStatus::kOpen:
      return false;
    case SampleStatus::kPending:
      return timing::device::wait(*impl_, 0);
    case SampleStatus::kCaptured:
      try {
        double ms = 0.0;
        return timing::device::read_captured(*impl_, ms);
      } catch (const std::exception&) {  // not replayed yet
        return false;
      }
    default:
      return true;
  }
}

double Sample::host_ms() const noexcept {
  if (impl_ == nullptr || impl_->load_status() == SampleStatus::kOpen) return kNothing;
  return impl_->host_ms();
}

std::string Sample::path() const { return impl_ != nullptr ? impl_->path->text : std::string(); }

std::string Sample::clock() const {
  return impl_ != nullptr ? timing::clock_name(impl_->clock) : std::string();
}

bool Sample::failed() const noexcept {
  return impl_ != nullptr && (impl_->body_raised || impl_->load_status() == SampleStatus::kFailed);
}

bool Sample::dropped() const noexcept {
  return impl_ != nullptr && impl_->load_status() == SampleStatus::kDropped;
}

GPUPROF_END_NAMESPACE
