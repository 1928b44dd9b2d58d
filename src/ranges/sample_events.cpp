#include "ranges/sample_events.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "driver/devices.hpp"
#include "driver/process.hpp"
#include "ranges/limits.hpp"
#include "timing/device.hpp"
#include "timing/timeline.hpp"
#include "trace/names.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::ranges {

using timing::Sample;
using timing::SampleStatus;
using trace::Event;
using trace::Kind;
using trace::Label;

namespace {

struct Categories {
  const Label* scope = trace::intern_category("scope");
  const Label* capture = trace::intern_category("capture");
  const Label* graph = trace::intern_category("graph");
  const Label unnamed{"\"(unnamed)\"", {}};
};
const Categories& categories() { return driver::immortal<Categories>(); }

// A scope inside others has its path in the trace, because its name alone is not unique.
const Label* made_label_of(const timing::Path& path) {
  const bool is_inside = path.parent != nullptr && path.parent->parent != nullptr;
  return is_inside ? trace::intern_with_path(path.name, path.text) : trace::intern(path.name);
}

// The label of a sample's name; null where it has to be made.
const Label* label_of(const timing::Path& path) {
  static std::array<std::atomic<const Label*>, timing::kMaxPaths> cache{};
  if (path.order >= cache.size()) return made_label_of(path);
  std::atomic<const Label*>& place = cache[path.order];
  const Label* label = place.load(std::memory_order_acquire);
  if (label == nullptr) {
    label = made_label_of(path);
    place.store(label, std::memory_order_release);
  }
  return label;
}

// Never throws: for lack of memory the trace has one slice less.
void note_sample(Event& event, const Sample& sample) noexcept {
  try {
    event.tid = sample.thread;
    event.name = sample.counted ? label_of(*sample.path) : &categories().unnamed;
    if (event.name == nullptr) set_name(event, sample.path->name);
  } catch (const std::exception&) {
    delete event.extra;
    return;
  }
  trace::note(event);
}

// Of a sample that a budget makes stand for others.
std::string one_in(const Sample& sample) { return "\"one_in\":" + std::to_string(sample.weight); }

void note_gpu_span(const Sample& sample) {
  static std::atomic<std::uint64_t> read_out{0};
  Event event;
  event.kind = Kind::kGpu;
  event.depth = sample.depth;
  event.end = sample.host_end;
  event.extra = new trace::Extra;
  if (sample.weight > 1) trace::set_args(event, one_in(sample));
  trace::GpuSpan& span = event.extra->gpu;
  span.work = static_cast<trace::GpuWork>(sample.kind);  // they mean the same
  span.begin = {sample.gpu_begin.clock, sample.gpu_begin.anchor, sample.gpu_begin.ms};
  span.duration_ns = sample.device_ms * 1e6;
  span.launched = sample.host_begin;
  if (const auto* clock = sample.gpu_begin.clock) span.device = timing::device::ordinal_of(clock);
  span.stream = trace::stream_key(sample.stream, sample.stream_id);
  span.order = read_out.fetch_add(1, std::memory_order_relaxed);
  note_sample(event, sample);
}

// The sink of finished samples. Any thread, without the interpreter lock.
void take_samples(const Sample* const* samples, std::size_t count) noexcept {
  if (limits_are_set.load(std::memory_order_relaxed)) check_limits(samples, count);
  if (!trace::is_recording()) return;
  for (std::size_t i = 0; i < count; ++i) {
    const Sample& sample = *samples[i];
    if (sample.clock != timing::kCudaClock || sample.load_status() != SampleStatus::kDone ||
        sample.thread == 0) {
      continue;
    }
    try {
      note_gpu_span(sample);  // also without a mark, to be counted as one that could not be placed
    } catch (const std::exception&) {  // out of memory: the trace has one slice less
    }
  }
}

// Once, on the writer thread: the driver is in use by then.
void name_devices() {
  static bool done = false;
  if (done) return;
  done = true;
  for (const driver::Device& device : driver::devices()) {
    trace::name_device(device.index, device.name);
  }
}

trace::GpuClock::Answer place_moment(const trace::GpuMoment& moment, timing::HostNanoseconds& at,
                                     timing::HostNanoseconds& error) noexcept {
  using Answer = trace::GpuClock::Answer;
  timing::timeline::HostMoment placed;
  const timing::GpuMark mark{static_cast<timing::EventClock*>(moment.clock), moment.anchor,
                             moment.ms};
  switch (timing::timeline::place(mark, placed)) {
    case timing::timeline::Placement::kPlaced:
      try {
        name_devices();
      } catch (const std::exception&) {  // then the tracks say the number alone
      }
      at = placed.at;
      error = placed.error;
      return Answer::kPlaced;
    case timing::timeline::Placement::kNotYet:
      return Answer::kNotYet;
    default:
      return Answer::kNever;
  }
}

using Tails = std::vector<timing::SampleRef>;

std::shared_ptr<const void> samples_in_flight() noexcept {
  try {
    Tails tails = timing::device::pending_tails();
    return tails.empty() ? nullptr : std::make_shared<const Tails>(std::move(tails));
  } catch (const std::exception&) {  // out of memory: they are not waited for
    return nullptr;
  }
}

bool are_over(const void* in_flight) noexcept {
  timing::device::drain();
  const auto& tails = *static_cast<const Tails*>(in_flight);
  return std::all_of(tails.begin(), tails.end(), [](const timing::SampleRef& tail) {
    return tail->load_status() != SampleStatus::kPending;
  });
}

std::uint64_t count_in_flight() noexcept {
  std::uint64_t count = 0;
  try {
    for (const auto& each : timing::device::pending_counts()) count += each.count;
  } catch (const std::exception&) {  // out of memory
  }
  return count;
}

}  // namespace

void trace_host_span(const Sample& sample, std::uint16_t depth, const char* file,
                     std::uint32_t line) noexcept {
  try {
    Event event;
    event.depth = depth;
    const bool captured = sample.load_status() == SampleStatus::kCaptured;
    event.category = captured ? categories().capture : categories().scope;
    if (sample.kind == timing::SpanKind::kReplay) event.category = categories().graph;
    event.begin = sample.host_begin;
    event.end = sample.host_end;
    std::string args = sample.body_raised ? "\"raised\":true" : "";
    const auto next = [&args] { return args.empty() ? "" : ","; };
    if (sample.weight > 1) args += next() + one_in(sample);
    if (file != nullptr) {
      args += next();
      args += "\"file\":";
      trace::append_json(args, file);
      args += ",\"line\":" + std::to_string(line);
    }
    if (!args.empty()) trace::set_args(event, std::move(args));
    note_sample(event, sample);
  } catch (const std::exception&) {  // out of memory: the trace has one slice less
  }
}

void connect_samples_to_traces() {
  static const bool connected = [] {
    timing::add_sink(&take_samples);
    trace::set_gpu_clock({&timing::timeline::want, &timing::timeline::refresh, &place_moment,
                          &samples_in_flight, &are_over, &count_in_flight});
    return true;
  }();
  static_cast<void>(connected);
}

}  // namespace gpuprof::ranges
