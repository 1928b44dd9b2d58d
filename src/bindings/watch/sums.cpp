#include "bindings/watch/sums.hpp"

#include <algorithm>
#include <utility>

#include "bindings/python/objects.hpp"
#include "bindings/timing/listeners.hpp"
#include "bindings/timing/sample.hpp"
#include "timing/device.hpp"

namespace gpuprof::bindings::watch {

namespace py = pybind11;
using timing::Sample;
using timing::SampleRef;
using timing::SampleStatus;

namespace {

constexpr std::size_t kFoldEvery = 64;

// Whether a sample has a time, which is added to `ms`; never waits.
bool add_time(Sample& sample, double sign, double& ms) {
  try {
    if (sample.load_status() == SampleStatus::kPending)
      timing::device::wait(sample, timing::monotonic_now());
    if (sample.load_status() != SampleStatus::kDone) return false;
    ms += sign * sample_milliseconds(sample);
    return true;
  } catch (const driver::Error&) {
    return false;
  }
}

const SampleRef* find_pending(const Waiting& waiting) {
  const auto is_pending = [](const SampleRef& each) {
    return each->load_status() == SampleStatus::kPending;
  };
  if (is_pending(waiting.sample)) return &waiting.sample;
  const auto found = std::find_if(waiting.without.begin(), waiting.without.end(), is_pending);
  return found == waiting.without.end() ? nullptr : &*found;
}

py::tuple samples_of(const Waiting& waiting) {
  py::tuple samples(1 + waiting.without.size());
  samples[0] = owned(wrap_sample(waiting.sample));
  for (std::size_t i = 0; i < waiting.without.size(); ++i)
    samples[i + 1] = owned(wrap_sample(waiting.without[i]));
  return samples;
}

}  // namespace

void Sums::take(Waiting waiting) {
  ++waiting.pass->calls;
  ++waiting.pass->pending;
  waiting_.push_back(std::move(waiting));
  if (waiting_.size() % kFoldEvery == 0) fold_known();
}

void Sums::fold(bool wait) {
  fold_known();
  while (wait && !waiting_.empty()) {
    if (const SampleRef* found = find_pending(waiting_.front())) {
      const SampleRef pending = *found;  // a copy: another thread may fold meanwhile
      try {
        sample_milliseconds(*pending.get());
      } catch (const driver::Error&) {
        if (pending->load_status() == SampleStatus::kPending) break;
      }
    }
    fold_known();
  }
  call_listeners_after_read();
}

void Sums::fold_known() {
  while (!waiting_.empty()) {
    const Waiting& oldest = waiting_.front();
    double ms = 0.0;
    const Sample* unknown = add_time(*oldest.sample.get(), 1.0, ms) ? nullptr : oldest.sample.get();
    for (const SampleRef& each : oldest.without) {
      if (!add_time(*each.get(), -1.0, ms) && unknown == nullptr) unknown = each.get();
    }
    if (find_pending(oldest) != nullptr) return;
    const Waiting known = std::move(waiting_.front());
    waiting_.pop_front();
    add(known, ms, unknown);
  }
}

void Sums::add(const Waiting& waiting, double ms, const Sample* unknown) {
  Pass& pass = *waiting.pass;
  const Sample& sample = *waiting.sample.get();
  --pass.pending;
  if (sample.load_status() == SampleStatus::kCaptured) {
    --pass.calls;
    pass.captured.append(samples_of(waiting));
  } else if (sample.body_raised || sample.load_status() == SampleStatus::kFailed) {
    ++pass.failed;
  } else if (unknown != nullptr) {
    pass.dropped += unknown->load_status() == SampleStatus::kDropped ? 1 : 0;
    pass.skipped += unknown->load_status() == SampleStatus::kSkipped ? 1 : 0;
  } else {
    ++pass.timed;
    pass.all_ms += ms;
    if (waiting.around_pass != nullptr) waiting.around_pass->below_ms += ms;
    if (!waiting.is_nested) {
      pass.outermost_ms += ms;
      if (waiting.around != nullptr && waiting.around == waiting.entry->caller)
        pass.inside_ms += ms;
    }
    if (std::find(clocks_.begin(), clocks_.end(), sample.clock) == clocks_.end())
      clocks_.push_back(sample.clock);
  }
}

}  // namespace gpuprof::bindings::watch
