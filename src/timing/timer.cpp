#include "timing/timer.hpp"

#include <stdexcept>
#include <string>

#include "timing/device.hpp"

namespace gpuprof::timing {

using driver::Error;
using driver::ErrorKind;

Timer::Timer(ClockId clock) : clock_(clock), sample_(make_sample()) {
  sample_->clock = clock;
  sample_->keeps_pair = true;
  sample_->counted = false;
  sample_->path = &root_path();
}

Sample& Timer::open_sample() const {
  if (!sample_) {
    driver::refuse("this Timer is closed; make a new one");
  }
  return *sample_.get();
}

void Timer::throw_if_failed() const {
  const SampleStatus status = sample_->load_status();
  if (status == SampleStatus::kFailed) {
    throw sample_->error ? *sample_->error
                         : Error(ErrorKind::kInvalidState, "the driver refused the timer's record");
  }
  if (status == SampleStatus::kDropped) {
    driver::refuse(
        "all 4096 event pairs of this context are in use; read or close other timers first");
  }
  if (status == SampleStatus::kSkipped) {
    driver::refuse(
        "the stream's capture is invalidated, so nothing can be recorded on it; end the "
        "capture first");
  }
}

void Timer::start(std::uintptr_t stream, int ordinal) {
  Sample& sample = open_sample();
  started_ = false;
  sample.error.reset();
  sample.finish(SampleStatus::kOpen);
  if (clock_ == kCudaClock) {
    sample.stream = stream;
    device::begin(sample, /*in_capture=*/true, ordinal);
    throw_if_failed();
  } else {
    sample.host_begin = host_now();
  }
  started_ = true;
}

void Timer::stop(std::uintptr_t stream) {
  Sample& sample = open_sample();
  if (!started_) {
    driver::refuse("the timer has no start; call record_start(), in C++ start(), before its end");
  }
  if (clock_ == kCudaClock) {
    if (stream != sample.stream && !device::may_end_on(sample, stream)) {
      throw std::invalid_argument(
          "stream: a timer must end on a stream of the device and the context "
          "of its start, stream " +
          std::to_string(sample.stream) + "; got stream " + std::to_string(stream) +
          " of another one");
    }
    end_stream_ = stream;
    device::end(sample, stream);
    if (sample.load_status() == SampleStatus::kFailed) started_ = false;
    throw_if_failed();
  } else {
    sample.host_end = host_now();
    sample.device_ms = sample.host_ms();
    sample.finish(SampleStatus::kDone);
  }
}

bool Timer::ready() {
  if (!sample_ || !stopped()) return false;
  double ms = 0.0;
  try {
    return read(monotonic_now(), ms);
  } catch (const Error&) {
    return false;
  }
}

bool Timer::read(HostNanoseconds until, double& ms) {
  Sample& sample = open_sample();
  ms = 0.0;
  if (!stopped()) return true;
  if (sample.load_status() == SampleStatus::kCaptured) return device::read_captured(sample, ms);
  if (!device::wait(sample, until)) return false;
  throw_if_failed();
  ms = sample.device_ms;
  return true;
}

}  // namespace gpuprof::timing
