// What a range shows to those that listen: NVTX, traces, torch's profiler.
//
// Made of checked arguments; nothing is given to a tool and no JSON is written before somebody
// listens. Shared by what is open under it, because a range may end after the object that began it
// is gone. Everything here needs the interpreter lock.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bindings/python/errors.hpp"
#include "bindings/python/switches.hpp"
#include "bindings/ranges/arguments.hpp"
#include "bindings/ranges/open_ranges.hpp"
#include "nvtx/range.hpp"
#include "trace/event.hpp"

namespace gpuprof::bindings {

class RangeAttributes {
 public:
  // The name must be a str. One that is no valid label has nothing to show.
  explicit RangeAttributes(const RangeArguments& arguments);
  // A name that is one, in UTF-8, and nothing else.
  explicit RangeAttributes(const std::string& name);

  // Whether the label can be shown. warn_if_invalid() says once what is wrong with one that cannot.
  [[nodiscard]] bool is_valid() const noexcept { return range_ != nullptr; }
  void warn_if_invalid() const;

  // Of a valid one:
  [[nodiscard]] open_ranges::NamedRange shown() noexcept { return {*range_, name_.ptr()}; }
  [[nodiscard]] nvtx::Range& range() noexcept { return *range_; }
  std::uint64_t start() { return range_->start(); }
  void end(std::uint64_t number) noexcept { nvtx::end(range_->domain(), number); }

  // Gives an event of this name to the traces that record; begin == end for an instant. May run
  // Python code once, for the repr of arguments.
  void trace(trace::Kind kind, driver::HostNanoseconds begin, driver::HostNanoseconds end,
             std::uint16_t depth = 0, std::uint32_t tid = 0);

 private:
  struct TraceTexts {
    const trace::Label* name = nullptr;  // null: there were too many to intern
    const trace::Label* category = nullptr;
    std::string args;
  };
  [[nodiscard]] TraceTexts make_trace_texts() const;

  pybind11::object name_;
  pybind11::object payload_;
  pybind11::object args_;
  std::string category_;
  std::unique_ptr<nvtx::Range> range_;  // null: the name is no label
  std::optional<TraceTexts> trace_texts_;
};

// gpuprof's own ranges, as gpuprof.nvtx.CATALOG describes them: what it does itself, in NVTX.
enum class OwnRange { kFlush, kDrain, kCapture, kInstantiate, kReplay };

// What it is called: "gpuprof.flush". Needs the interpreter lock, as the rest.
open_ranges::NamedRange shown(OwnRange which);

// Runs `work` inside the range, where NVTX is on. Its exceptions come out with the range closed. A
// thread that ends in it at exit unwinds through, and leaves the range open.
template <typename Work>
void inside_own_range(OwnRange which, Work&& work) {
  if (!listens(kNvtx)) {
    std::forward<Work>(work)();
    return;
  }
  const int owner = 0;  // its address is the range's own
  open_ranges::open(&owner, shown(which), kNvtx);
  with_cleanup(work, [&] { open_ranges::close(&owner, false); });
}

}  // namespace gpuprof::bindings

// Ranges that are started and ended; see ranges/started.hpp.
namespace gpuprof::bindings::started_ranges {

// Starts a range of valid attributes. Its number, or 0 where nobody listens and where there are too
// many.
std::uint64_t start(const std::shared_ptr<RangeAttributes>& attributes);

// Ends it. False if no range of that number is open.
bool end(std::uint64_t number);

[[nodiscard]] bool is_in_nvtx(std::uint64_t number);

}  // namespace gpuprof::bindings::started_ranges
