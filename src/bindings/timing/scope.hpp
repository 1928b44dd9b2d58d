// The scope that Python holds: options, the entries that are open, and the last sample.
//
// One Scope may be open many times at once: nested in itself, in several threads, tasks and
// generators. Everything here needs the interpreter lock.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/python/switches.hpp"
#include "bindings/ranges/open_ranges.hpp"
#include "bindings/ranges/range_attributes.hpp"
#include "bindings/ranges/scope_stack.hpp"
#include "bindings/timing/budget.hpp"
#include "timing/path.hpp"
#include "timing/sample.hpp"
#include "timing/scope.hpp"

namespace gpuprof::bindings {

enum class ClockChoice : std::uint8_t { kAuto, kCuda, kCpu, kSync };

// What Python gives to make a scope; validated there.
struct ScopeOptions {
  std::optional<std::string> name;  // UTF-8; none: not in the statistics
  pybind11::object stream;          // None, an int, or an object that is kept alive
  pybind11::object backend;         // "auto", "cuda", "cpu" or a SyncBackend
  std::optional<bool> enabled;      // none: follows the global switch
  bool verify_stream = false;
  bool record_in_capture = false;
  std::optional<double> flops;   // of each entry
  std::optional<double> nbytes;  // of each entry
  bool memory = false;           // read the allocators at each entry and exit
};

class Scope {
 public:
  explicit Scope(ScopeOptions options);
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  // Entries that are open still are taken out of their stacks; their samples count nowhere.
  ~Scope();

  // Opens a sample and returns it as a new Python object. Throws only for lack of memory.
  PyObject* enter();

  // Closes the entry that this frame opened. Does nothing if timing was off then. Throws
  // driver::Error(kStreamMismatch) where that was asked for and the body did not raise.
  void exit(bool body_raised) {
    if (measured_ == 0) {
      exit_unmeasured(body_raised);
    } else {
      exit_measured(body_raised);
    }
  }

  [[nodiscard]] const ScopeOptions& options() const noexcept { return options_; }
  [[nodiscard]] const timing::SampleRef& read_last() noexcept {
    is_read_ = true;
    return last_;
  }
  [[nodiscard]] bool is_enabled() const noexcept {
    if (switches.disabled_for_good || is_paused()) return false;
    return options_.enabled.value_or(timing::scope::enabled.load(std::memory_order_relaxed));
  }
  // The usual entry needs one look: whether the scope is on and asks for nothing but the time.
  [[nodiscard]] bool is_plain_and_enabled() const noexcept {
    if (switches.disabled_for_good || is_paused()) return false;
    return plain_.value_or(budget::all_measured.load(std::memory_order_relaxed));
  }
  [[nodiscard]] bool is_off() const noexcept { return !is_enabled(); }
  // Whatever the switch says later.
  [[nodiscard]] bool is_off_for_good() const noexcept {
    return switches.disabled_for_good || !options_.enabled.value_or(true);
  }

 private:
  struct Place {
    ScopeStack* stack;
    std::size_t index;
  };

  // What an open sample needs until it is left.
  struct Held {
    const timing::Sample* sample;
    PyObject* object;
    bool is_reading;  // of the allocators; else the stream lives as long as the object
  };

  [[nodiscard]] bool chooses_cuda() const;
  PyObject* enter_otherwise();
  PyObject* enter_within_budget();
  PyObject* enter_chosen(const timing::Path& path, std::uint32_t weight, timing::Visit visit,
                         timing::Visits& payer);
  [[gnu::noinline]] PyObject* enter_measured(timing::Visit visit);
  PyObject* enter_measured(timing::SampleRef sample, timing::Visit visit);
  PyObject* open_sample(timing::SampleRef sample, const timing::Visit& visit);
  void enter_disabled();
  void exit_measured(bool body_raised);
  void exit_unmeasured(bool body_raised);
  [[gnu::noinline]] void close_empty(Place place, bool body_raised);
  void call_listeners_after_left_out(const timing::Visits& visits) const;
  [[nodiscard]] bool is_captured() const;
  timing::NestingEntry& push_entry(ScopeStack& stack, const timing::Path& inside) {
    open_in_.emplace_back() = &stack;
    const bool is_only = unmeasured_ == 0 && open_in_.size() == 1;
    timing::NestingEntry& entry = is_only ? stack.open() : push_further_entry(stack);
    entry.owner = this;
    entry.inside = &inside;
    return entry;
  }
  // Not inline, as close_empty(): the registers that it needs would be saved in all entries.
  [[gnu::noinline]] timing::NestingEntry& push_further_entry(ScopeStack& stack);
  // Whether the newest entry of the stack is the scope's only one.
  [[nodiscard]] bool is_only_entry(const ScopeStack& stack) const noexcept {
    return open_in_.size() == 1 && unmeasured_ == 0 && !stack.empty() &&
           stack.entries().back().owner == this;
  }
  timing::SampleRef take_entry(const Place& place);
  void open_entry(timing::Sample& sample, const timing::Visit& visit);
  void open_clock(timing::Sample& sample);
  void open_on_stream(timing::Sample& sample);
  void close_clock(timing::Sample& sample, timing::HostNanoseconds now);
  void close_verified(timing::Sample& sample);
  bool synchronize_backend();
  [[nodiscard]] Place find_open() const;
  void open_range(const timing::Sample& sample, std::uint32_t told);
  void let_go(timing::Sample& sample) {
    if (!held_.empty()) let_go_of_held(sample);
  }
  void let_go_of_held(timing::Sample& sample);
  std::optional<Held> take_held(const timing::Sample& sample);

  ScopeOptions options_;
  std::optional<bool> plain_;  // options_.enabled; false where an entry needs more than a clock
  bool in_budget_;             // a budget may leave its visits out
  ClockChoice choice_ = ClockChoice::kAuto;
  timing::ClockId sync_clock_ = timing::kCpuClock;
  pybind11::object synchronize_;
  std::uintptr_t stream_ = 0;
  timing::PathCache path_;
  std::vector<ScopeStack*> open_in_;  // for each entry, oldest first
  std::size_t measured_ = 0;          // of these, the entries with a sample
  std::size_t unmeasured_ = 0;        // open entries without a place, because timing was off
  timing::SampleRef last_;
  bool is_read_ = false;  // `last_`, by the user
  std::uint32_t cell_;    // of a notebook, that made it
  std::vector<Held> held_;
  std::unique_ptr<RangeAttributes> attributes_;  // made when somebody listens
};

}  // namespace gpuprof::bindings
