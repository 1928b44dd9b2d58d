#include "bindings/timing/budget.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/timing/sample.hpp"
#include "bindings/timing/scope.hpp"
#include "driver/process.hpp"
#include "timing/scope.hpp"
#include "timing/statistics.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using timing::HostNanoseconds;
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
  bool is_on = false;
  std::uint32_t epoch = 1;  // of counts of visits that are left out
};

State& state() { return driver::immortal<State>(); }

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

// The 3rd, 5th, 9th and so on, and each 64th: the first ones find cold caches.
bool is_timed(std::uint32_t taken) noexcept {
  return taken >= 2 && (taken % 64 == 0 || (taken & (taken - 1)) == 0);
}

}  // namespace

namespace budget {

bool is_on() noexcept { return state().is_on; }

void note_switch() noexcept {
  const bool enabled = timing::scope::enabled.load(std::memory_order_relaxed);
  all_measured.store(enabled && !state().is_on, std::memory_order_relaxed);
}

void hand_over_left_out() noexcept {
  for (const Path* path : state().paths) hand_over(*path);
}

void begin_anew() noexcept {
  State& s = state();
  if (++s.epoch == 0) s.epoch = 1;  // 0 is the epoch of what is not counted
  s.policy.begin_anew();
}

void read_cost(const Sample& sample, HostNanoseconds exit_ns) noexcept {
  Visits& visits = sample.path->visits;
  const auto read = static_cast<double>(sample.enter_ns + exit_ns);
  if (visits.own_ns == 0.0) {
    visits.own_ns = read;
  } else {  // of an interruption only a part
    visits.own_ns += (std::min(read, 4 * visits.own_ns) - visits.own_ns) / 4;
  }
}

}  // namespace budget

PyObject* Scope::enter_within_budget() {
  State& s = state();
  ScopeStack& stack = current_scope_stack();
  const Visit around = stack.visit();
  if (!in_budget_) return enter_measured(SampleRef(timing::make_sample()), around);

  const Path& path = path_.below(stack.path());
  Visits& visits = path.visits;
  Visit visit = around;
  std::uint32_t weight = around.inside;
  const bool decides = weight == 1;
  if (decides) {
    weight = s.policy.decide(visits);
    visit = {&visits, weight, weight > 1 ? s.policy.next_draw() : 0, 0};
  } else if (s.policy.is_first(visits)) {
    weight = 1;
  }
  if (weight == 0) {
    visit.counted = s.epoch;
    push_entry(stack, {this, nullptr, &path, nullptr, false, visit});
    if (decides && timing::Budget::looks(visits)) s.policy.look(timing::host_now());
    return left_out_sample();
  }

  if (visits.taken == 0) s.paths.push_back(&path);
  const bool is_timed_now = is_timed(visits.taken++);
  const HostNanoseconds began = is_timed_now ? timing::host_now() : 0;
  SampleRef sample(timing::make_sample());
  const SampleRef kept = sample;
  sample->weight = weight;
  sample->draw = visit.draw;
  PyObject* object = enter_measured(std::move(sample), visit);
  Sample& opened = *kept.get();
  const HostNanoseconds now =
      is_timed_now || opened.host_begin == 0 ? timing::host_now() : opened.host_begin;
  if (is_timed_now)
    opened.enter_ns = static_cast<std::uint32_t>(std::max<HostNanoseconds>(now - began, 1));
  if (opened.clock != visits.clock) {
    hand_over(path);
    visits.clock = opened.clock;
  }
  Visits& payer = !decides && weight > 1 ? *around.paid_by : visits;
  s.policy.charge(payer, cost_of(visits, opened.clock), decides, now);
  return object;
}

void Scope::leave_unmeasured(bool body_raised) {
  const Place place = open_in_.empty() ? Place{nullptr, 0} : find_open();
  if (place.stack == nullptr) {  // timing was off at the enter
    if (unmeasured_ > 0) --unmeasured_;
    return;
  }
  close_empty(place, body_raised);
}

void Scope::close_empty(const Place& place, bool body_raised) {
  const timing::NestingEntry& entry = place.stack->entries()[place.index];
  if (entry.visit.counted == state().epoch) {
    ++entry.inside->visits.left_out;
    if (body_raised) ++entry.inside->visits.raised;
  }
  take_entry(place);
}

// Otherwise all workers of one parent would measure the same visits.
void reseed_in_child() noexcept { state().policy.seed(static_cast<std::uint64_t>(getpid())); }

void bind_timing_budget(py::module_& module) {
  state().policy.seed(static_cast<std::uint64_t>(timing::monotonic_now()));
  driver::on_fork_child(reseed_in_child);
  module.def(
      "_set_budget",
      [](std::optional<double> share) {
        State& s = state();
        s.is_on = share.has_value();
        if (share) s.policy.set_share(*share, timing::host_now());
        budget::note_switch();
      },
      py::arg("share"), "Let measuring take this share of the time; None measures every visit.");
}

}  // namespace gpuprof::bindings
