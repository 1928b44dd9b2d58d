// The annotation that Python holds: its arguments, and how it is entered and left.
//
// One Annotation may be open many times at once: nested in itself, in several threads, tasks and
// generators. A `with` is a range of its thread's stack (open_ranges.hpp); an `async with` is
// started and ended (range_attributes.hpp), because tasks interleave. Nothing that an annotation
// does is raised into the body, but for lack of memory and interrupts. Everything here needs the
// interpreter lock.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "bindings/ranges/range_attributes.hpp"
#include "bindings/ranges/torch_profiler.hpp"

namespace gpuprof::bindings {

class Annotation {
 public:
  explicit Annotation(RangeArguments arguments);
  Annotation(const Annotation&) = delete;
  Annotation& operator=(const Annotation&) = delete;
  // What is open still is closed as far as it can be.
  ~Annotation();

  void enter() {
    const std::uint32_t told = listeners();
    if (told == 0 && open_ == 0 && is_valid_) {
      ++unlistened_;
    } else {
      enter_listened(told);
    }
  }
  void exit(bool /*raised*/ = false) {
    if (open_ != 0) {
      exit_listened();
    } else if (unlistened_ != 0) {
      --unlistened_;
    }
  }

  // Whether entering it now shows nothing, and starting it starts nothing.
  [[nodiscard]] bool is_off() const { return is_valid_ && listeners() == 0; }
  [[nodiscard]] bool starts_nothing() const {
    return is_valid_ && !listens(kNvtx) && !listens(kTrace);
  }

  void enter_async();
  void exit_async();

  // For decorators: a range of its own, 0 where nobody listens, and its end on any thread.
  std::uint64_t start();
  static void end(std::uint64_t number);

  // Whether NVTX is on, a tool listens, and this annotation is open here in a range that was given
  // to NVTX and will be closed in turn.
  [[nodiscard]] bool is_active() const;

  // Gives the label to the tool, if NVTX is on.
  void register_label();

  [[nodiscard]] const RangeArguments& arguments() const noexcept { return arguments_; }

 private:
  struct Awaited {
    const void* context;  // the task's
    std::uint64_t number;
  };

  void enter_listened(std::uint32_t told);
  void exit_listened();
  bool warn_if_invalid() const;

  RangeArguments arguments_;
  std::shared_ptr<RangeAttributes> attributes_;  // null without a name
  bool is_valid_ = false;
  std::uint32_t open_ = 0;        // entries in open_ranges
  std::uint32_t unlistened_ = 0;  // entered while nobody listened
  std::vector<Awaited> awaited_;
  std::uint32_t unlistened_awaited_ = 0;
};

}  // namespace gpuprof::bindings
