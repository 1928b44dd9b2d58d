#include "bindings/timing/scope.hpp"

#include <algorithm>
#include <utility>

#include "bindings/interop/streams.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"
#include "bindings/python/objects.hpp"
#include "bindings/python/queueing.hpp"
#include "bindings/python/switches.hpp"
#include "bindings/ranges/scope_events.hpp"
#include "bindings/ranges/torch_profiler.hpp"
#include "bindings/timing/listeners.hpp"
#include "bindings/timing/sample.hpp"
#include "timing/device.hpp"
#include "timing/scope.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using driver::Error;
using driver::ErrorKind;
using timing::HostNanoseconds;
using timing::NestingEntry;
using timing::Sample;
using timing::SampleRef;
using timing::SampleStatus;
using timing::Visit;

namespace {

// Longer than the host needs from one record to the next with a synchronise between.
constexpr double kMismatchMs = 0.05;
constexpr double kMismatchShare = 0.1;

constexpr Visit kNoVisit;

ClockChoice choice_of(const py::object& backend) {
  if (!py::isinstance<py::str>(backend)) return ClockChoice::kSync;
  const auto name = backend.cast<std::string>();
  if (name == "cuda") return ClockChoice::kCuda;
  return name == "cpu" ? ClockChoice::kCpu : ClockChoice::kAuto;
}

// Counted from 1; 0 is none.
std::size_t newest_entry(const std::vector<NestingEntry>& entries, const void* owner) {
  return match_frame(entries, owner, nullptr).newest;
}

}  // namespace

Scope::Scope(ScopeOptions options)
    : options_(std::move(options)),
      plain_(options_.enabled),
      in_budget_(options_.name && !options_.enabled.value_or(false) && !options_.verify_stream &&
                 !options_.record_in_capture),
      choice_(choice_of(options_.backend)),
      path_(options_.name.value_or("")),
      cell_(notebook_cell) {
  if (choice_ == ClockChoice::kSync) {
    sync_clock_ = timing::clock_id(options_.backend.attr("name").cast<std::string>());
    synchronize_ = options_.backend.attr("synchronize");
  }
  if (!options_.stream.is_none()) stream_ = stream_handle(options_.stream.ptr());
  if (options_.memory || options_.flops || options_.nbytes) plain_ = false;
}

Scope::~Scope() {
  while (!open_in_.empty()) {
    ScopeStack& stack = *open_in_.back();
    const SampleRef sample = take_entry({&stack, newest_entry(stack.entries(), this) - 1});
    if (sample && open_ranges::count != 0) open_ranges::abandon(sample.get());
  }
  for (const Held& each : held_) Py_DECREF(each.object);
  const bool is_for_cell = cell_ != 0 && cell_ == notebook_cell && !options_.name;
  if (is_for_cell && last_ && !is_read_) keep_unheld(std::move(last_));
}

PyObject* Scope::enter() {
  if (!is_plain_and_enabled()) return enter_otherwise();
  return open_sample(SampleRef(timing::make_sample()), kNoVisit);
}

PyObject* Scope::open_sample(SampleRef sample, const Visit& visit) {
  Sample* raw = sample.get();
  PyObject* object = checked(wrap_sample(std::move(sample)));  // before the clock starts
  try {
    if (const std::uint32_t told = listeners(); told != 0) {
      open_range(*raw, told);
      if ((told & kSpans) != 0 && options_.name) {
        raw->path = &path_.below(current_scope_stack().path());
        enter_span(object);
      }
    }
    open_entry(*raw, visit);
  } catch (const std::exception&) {  // not (...): a thread that ends at exit must unwind on
    if (open_ranges::count != 0) open_ranges::close(raw, false, false);
    if (open_spans != 0) leave_span(sample_in(object));
    Py_DECREF(object);
    throw;
  }
  emit_pending_warnings();
  return object;
}

// Outside of the sample, which must not pay for it. The trace gets the scope at its exit.
void Scope::open_range(const Sample& sample, std::uint32_t told) {
  if (!attributes_)
    attributes_ = std::make_unique<RangeAttributes>(options_.name.value_or("(unnamed)"));
  if ((told & kTrace) != 0 && trace_records()) name_this_thread();
  open_ranges::open(&sample, attributes_->shown(), told & ~static_cast<std::uint32_t>(kTrace));
}

// Beside measured entries an exit has to find out which it is, so that this one needs an entry too.
void Scope::enter_disabled() {
  ScopeStack& stack = current_scope_stack();
  const Visit visit = stack.visit();
  push_entry(stack, stack.path()).visit = visit;
}

NestingEntry& Scope::push_further_entry(ScopeStack& stack) {
  const bool is_again = unmeasured_ > 0 || newest_entry(stack.entries(), this) != 0;
  // First, because it may run Python code.
  const FrameMark frame = is_again ? current_frame() : FrameMark{};
  NestingEntry& entry = stack.open();
  entry.frame = frame.frame;
  entry.frame_may_suspend = frame.may_suspend;
  return entry;
}

SampleRef Scope::take_entry(const Place& place) {
  SampleRef sample(place.stack->entries()[place.index].sample);
  if (open_in_.back() == place.stack) {
    open_in_.pop_back();
  } else {
    open_in_.erase(std::next(std::find(open_in_.rbegin(), open_in_.rend(), place.stack)).base());
  }
  place.stack->close(place.index);  // last: letting the context go may run Python code
  return sample;
}

void Scope::open_entry(Sample& sample, const Visit& visit) {
  ScopeStack& stack = current_scope_stack();
  const timing::Path& outside = stack.path();
  sample.counted = options_.name.has_value();
  sample.path = sample.counted ? &path_.below(outside) : &outside;
  sample.depth = static_cast<std::uint16_t>(std::min<std::size_t>(stack.size(), UINT16_MAX - 1));
  NestingEntry& entry = push_entry(stack, *sample.path);
  entry.sample = &sample;
  entry.visit = visit;
  ++measured_;
  timing::add_reference(&sample);
  try {
    open_clock(sample);
  } catch (const py::error_already_set&) {  // an interrupt in synchronize: there will be no exit
    take_entry(find_open());
    --measured_;
    sample.finish(SampleStatus::kFailed);
    throw;
  }
}

bool Scope::chooses_cuda() const {
  if (choice_ == ClockChoice::kCuda) return true;
  if (choice_ != ClockChoice::kAuto) return false;
  const bool is_cuda_stream = !options_.stream.is_none();
  if (is_cuda_stream && (timing::device::initialised_in_process() || timing::device::forked())) {
    return true;
  }
  return timing::scope::cuda_in_use() || framework_is_live();
}

void Scope::open_clock(Sample& sample) {
  if (choice_ == ClockChoice::kSync) {
    sample.clock = sync_clock_;
    if (!synchronize_backend()) sample.finish(SampleStatus::kFailed);
  } else if (chooses_cuda()) {
    open_on_stream(sample);
    return;
  }
  timing::scope::open_host(sample, timing::host_now());
}

void Scope::open_on_stream(Sample& sample) {
  PyObject* owner = nullptr;
  const CurrentStream stream =
      options_.stream.is_none() ? current_stream(&owner) : CurrentStream{stream_, 0};
  if (owner != nullptr) held_.push_back({&sample, owner, false});
  sample.stream = stream.handle;
  if (options_.verify_stream) {
    try {
      without_gil([&] { timing::device::synchronize(stream.handle, stream.ordinal); });
    } catch (const Error&) {  // the record that follows meets the same and reports it
    }
  }
  queue_without_gil({stream.handle}, [&] {
    timing::scope::open_cuda(sample, options_.record_in_capture, stream.ordinal);
  });
}

void Scope::exit_measured(bool body_raised) {
  // What follows must not count on the host's clock; a CUDA sample takes its own time later.
  const bool was_cuda = last_ && last_->clock == timing::kCudaClock;
  HostNanoseconds now = was_cuda ? 0 : timing::host_now();
  const Place place = find_open();
  if (place.stack == nullptr || place.stack->entries()[place.index].sample == nullptr) {
    close_empty(place, body_raised);
    return;
  }
  SampleRef sample = take_entry(place);
  --measured_;
  sample->body_raised = body_raised;
  const bool traced = listens(kTrace);
  if (traced || is_heard()) sample->thread = trace::thread_id();
  const bool is_cuda = sample->clock == timing::kCudaClock;
  if (was_cuda && (!is_cuda || sample->enter_ns != 0)) now = timing::host_now();
  try {
    if (options_.verify_stream && !body_raised && is_cuda &&
        sample->load_status() == SampleStatus::kOpen && !sample->external()) {
      close_verified(*sample.get());
    } else {
      close_clock(*sample.get(), now);
    }
  } catch (const std::exception&) {
    last_ = sample;
    if (open_ranges::count != 0) open_ranges::close(sample.get(), false);
    if (open_spans != 0) leave_span(sample);
    let_go(*sample.get());
    throw;
  }
  last_ = sample;  // now that it is left: another thread may read it while the record waits
  open_ranges::Closed range;
  if (open_ranges::count != 0) {
    range = open_ranges::close(sample.get(), false);
    if (open_spans != 0) leave_span(sample);
  }
  if (traced && trace_records()) {  // after the clock: the first time this opens the trace
    name_this_thread();
    trace_host_span(*sample.get(), range.depth);
  }
  let_go(*sample.get());
  emit_pending_warnings();
  if (sample->enter_ns != 0) budget::read_cost(*sample.get(), now);
  if (is_heard()) call_listeners_after_exit(*sample.get());
}

void Scope::close_clock(Sample& sample, HostNanoseconds now) {
  if (sample.clock == timing::kCudaClock) {
    if (sample.load_status() != SampleStatus::kOpen) {
      timing::scope::close_cuda(sample);  // queues nothing
    } else {
      queue_without_gil({sample.stream, sample.events}, [&] { timing::scope::close_cuda(sample); });
    }
    return;
  }
  if (choice_ == ClockChoice::kSync) {
    bool synchronized = false;
    try {
      synchronized = synchronize_backend();
    } catch (const py::error_already_set&) {
      timing::scope::abandon(sample);
      throw;
    }
    now = timing::host_now();
    if (!synchronized || sample.load_status() == SampleStatus::kFailed) {
      timing::scope::abandon(sample);
      return;
    }
  }
  timing::scope::close_host(sample, now, choice_ == ClockChoice::kAuto);
}

void Scope::close_verified(Sample& sample) {
  double tail_ms = 0.0;
  try {
    without_gil([&] { tail_ms = timing::device::end_and_wait_for_all(sample); });
  } catch (const Error& error) {
    if (sample.host_end == 0) sample.host_end = timing::host_now();
    sample.fail(error);
    timing::deliver(&sample);
    throw;
  }
  timing::deliver(&sample);
  if (tail_ms < kMismatchMs + kMismatchShare * sample.device_ms) return;
  throw Error(ErrorKind::kStreamMismatch,
              "the device went on for " + std::to_string(tail_ms) + " ms after the timed stream " +
                  std::to_string(sample.stream) + " was done (it read " +
                  std::to_string(sample.device_ms) +
                  " ms): the work ran on another stream; pass that stream as stream=");
}

// Python code of the user's: its failures must not come out into the body, an interrupt must. A
// thread that ends in here at exit unwinds through, so nothing may stop that: no noexcept, no
// catch (...).
bool Scope::synchronize_backend() {
  PyObject* result = PyObject_CallNoArgs(synchronize_.ptr());
  if (result != nullptr) {
    Py_DECREF(result);
    return true;
  }
  py::error_already_set error;
  if (!error.matches(PyExc_Exception)) throw error;
  driver::warn_once(driver::Warning::kBackendFailed,
                    std::string("gpuprof: the backend's synchronize raised, so its scopes measure "
                                "nothing: ") +
                        error.what());
  return false;
}

Scope::Place Scope::find_open() const {
  ScopeStack& stack = current_scope_stack();
  const auto& entries = stack.entries();
  if (is_only_entry(stack)) return {&stack, entries.size() - 1};
  const FrameMark now = current_frame();
  const FrameMatch match = match_frame(entries, this, &now);
  if (match.closed != 0) return {&stack, match.closed - 1};
  if (unmeasured_ > 0) return {nullptr, 0};
  if (match.newest != 0) return {&stack, match.newest - 1};
  driver::warn_once(driver::Warning::kForeignExit,
                    "gpuprof: a timer scope was left on another thread or task than it was entered "
                    "on; its newest entry was closed");
  ScopeStack& other = *open_in_.back();
  return {&other, newest_entry(other.entries(), this) - 1};
}

}  // namespace gpuprof::bindings
