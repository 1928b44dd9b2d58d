#include "bindings/timing/budget.hpp"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/interop/streams.hpp"
#include "bindings/python/keep_alive.hpp"
#include "bindings/timing/listeners.hpp"
#include "bindings/timing/sample.hpp"
#include "bindings/timing/scope.hpp"
#include "driver/process.hpp"
#include "graphs/capture.hpp"
#include "timing/scope.hpp"
#include "timing/statistics.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using timing::HostNanoseconds;
using timing::NestingEntry;
using timing::Path;
using timing::Sample;
using timing::SampleRef;
using timing::Visit;
using timing::Visits;

namespace {

// What two event records add to the GPU's time where work is queued, as measured on an H200.
constexpr double kGpuNs = 3500.0;
constexpr double kHostNs = 1000.0;  // until an entry of the path has been timed

struct State {
  timing::Budget policy;
  std::vector<const Path*> paths;  // that have been measured within it
  std::uint32_t epoch = 1;         // of counts of visits that are left out
};

State& state = driver::immortal<State>();

double cost_of(const Visits& visits, timing::ClockId clock) noexcept {
  const double host = visits.own_ns > 0.0 ? visits.own_ns : kHostNs;
  return clock == timing::kCudaClock ? std::max(host, kGpuNs) : host;
}

void hand_over(const Path& path) noexcept {
  Visits& visits = path.visits;
  const auto left_out = std::exchange(visits.left_out, 0);
  const auto raised = std::exchange(visits.raised, 0);
  if (left_out == 0) return;
  timing::statistics::add_left_out(path, visits.clock, left_out - raised, raised);
}

// The 3rd, 5th, 9th and so on, and each 16th: the first ones find cold caches.
bool is_timed(std::uint32_t taken) noexcept {
  return taken >= 2 && (taken % 16 == 0 || (taken & (taken - 1)) == 0);
}

// Counts an entry without a sample that is left, where a budget left it out.
const Visits& count_left_out(const NestingEntry& entry, bool body_raised) noexcept {
  Visits& visits = entry.inside->visits;
  if (entry.left_out_in == state.epoch) {
    ++visits.left_out;
    if (body_raised) ++visits.raised;
  }
  return visits;
}

}  // namespace

namespace budget {

void note_switch() noexcept {
  const bool enabled = timing::scope::enabled.load(std::memory_order_relaxed);
  all_measured.store(enabled && !is_on, std::memory_order_relaxed);
}

void hand_over_left_out() noexcept {
  for (const Path* path : state.paths) hand_over(*path);
}

void begin_anew() noexcept {
  if (++state.epoch == 0) state.epoch = 1;  // 0 is the epoch of what is not left out
  state.policy.begin_anew();
  for (const Path* path : state.paths) path->visits.left_out = path->visits.raised = 0;
}

void read_cost(const Sample& sample, HostNanoseconds exit_began) noexcept {
  Visits& visits = sample.path->visits;
  const auto read = static_cast<double>(sample.enter_ns + (timing::host_now() - exit_began));
  if (visits.own_ns == 0.0) {
    visits.own_ns = read;
  } else {  // of an interruption only a part
    visits.own_ns += (std::min(read, 4 * visits.own_ns) - visits.own_ns) / 4;
  }
}

}  // namespace budget

// Without a local whose address is taken: a visit that is left out is to cost little more than a
// disabled one.
PyObject* Scope::enter_within_budget() {
  // A graph keeps what is recorded now for all its launches.
  if (relaxed_collections() > 0) return enter_measured({});
  ScopeStack& stack = current_scope_stack();
  const Visit visit = stack.visit();
  if (!in_budget_) return enter_measured(visit);
  const Path& path = path_.below(stack.path());
  Visits& visits = path.visits;
  const std::uint32_t around = visit.inside;
  if (around != 1) {
    if (state.policy.is_first(visits)) return enter_chosen(path, 1, visit, visits);
    if (around != 0 && !state.policy.is_used_up(*visit.paid_by))
      return enter_chosen(path, around, visit, *visit.paid_by);
  }
  if (around != 0) {
    const std::uint64_t product = std::uint64_t{state.policy.decide(visits)} * around;
    const auto weight = static_cast<std::uint32_t>(product);
    if (product != 0 && product == weight) {
      const bool is_new = around == 1 && weight > 1;
      const std::uint32_t draw = is_new ? state.policy.next_draw() : visit.draw;
      return enter_chosen(path, weight, {&visits, weight, draw}, visits);
    }
  }
  NestingEntry& entry = push_entry(stack, path);
  entry.left_out_in = state.epoch;
  entry.visit.inside = 0;
  if (around != 0 && timing::Budget::looks(visits)) state.policy.look(timing::host_now());
  return left_out_sample();
}

// A visit that is measured. `payer` has decided that.
PyObject* Scope::enter_chosen(const Path& path, std::uint32_t weight, Visit visit, Visits& payer) {
  Visits& visits = path.visits;
  if (visits.taken == 0) state.paths.push_back(&path);
  const bool times_itself = is_timed(visits.taken++);
  const HostNanoseconds began = times_itself ? timing::host_now() : 0;
  const SampleRef sample(timing::make_sample());
  sample->weight = weight;
  sample->draw = visit.draw;
  PyObject* object = enter_measured(sample, visit);
  const bool has_begin = sample->host_begin != 0 && !times_itself;
  const HostNanoseconds now = has_begin ? sample->host_begin : timing::host_now();
  if (times_itself) sample->enter_ns = static_cast<std::uint32_t>(now - began) | 1U;  // above 0
  if (sample->clock != visits.clock) {
    hand_over(path);
    visits.clock = sample->clock;
  }
  state.policy.charge(payer, cost_of(visits, sample->clock), visit.paid_by == &visits, now);
  return object;
}

// As after a measured exit, but for the clock, which is read now and then.
void Scope::call_listeners_after_left_out(const Visits& visits) const {
  using timing::listeners::attention, timing::listeners::kDue;
  const bool is_due = (attention.load(std::memory_order_relaxed) & kDue) != 0;
  const bool looks = timing::Budget::looks(visits) && current_scope_stack().empty();
  if (!is_due && !looks) return;
  if (visits.clock == timing::kCudaClock && is_captured()) return;
  call_listeners_after_launch();
}

// Whether its stream is in a capture, of whomever.
bool Scope::is_captured() const {
  const CurrentStream stream =
      options_.stream.is_none() ? current_stream() : CurrentStream{stream_, 0};
  try {
    return graphs::status_of(stream.handle, stream.ordinal) != graphs::CaptureStatus::kNone;
  } catch (const driver::Error&) {
    return true;
  }
}

void Scope::exit_unmeasured(bool body_raised) {
  if (open_in_.empty()) {
    if (unmeasured_ > 0) --unmeasured_;  // timing was off at the enter
    return;
  }
  ScopeStack& stack = *open_in_.back();
  if (!stack.has_current_context() || !is_only_entry(stack)) {
    close_empty(find_open(), body_raised);
    return;
  }
  const Visits& visits = count_left_out(stack.entries().back(), body_raised);
  open_in_.clear();
  stack.close(stack.size() - 1);
  if (is_heard()) call_listeners_after_left_out(visits);
}

// The exit of an entry without a sample, or without a place.
void Scope::close_empty(Place place, bool body_raised) {
  if (place.stack == nullptr) {
    --unmeasured_;
    return;
  }
  const Visits& visits = count_left_out(place.stack->entries()[place.index], body_raised);
  take_entry(place);
  if (is_heard()) call_listeners_after_left_out(visits);
}

// Otherwise all workers of one parent would measure the same visits.
void reseed_in_child() noexcept { state.policy.seed(static_cast<std::uint64_t>(getpid())); }

void bind_timing_budget(py::module_& module) {
  state.policy.seed(static_cast<std::uint64_t>(timing::monotonic_now()));
  driver::on_fork_child(reseed_in_child);
  module.def(
      "_set_budget",
      [](std::optional<double> share) {
        budget::is_on = share.has_value();
        if (share) state.policy.set_share(*share, timing::host_now());
        budget::note_switch();
      },
      py::arg("share"), "Let measuring take this share of the time; None measures every visit.");
}

}  // namespace gpuprof::bindings
