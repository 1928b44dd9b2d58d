// A map from one GPU's time to the host's clock, made of anchors, without any driver.
//
// An anchor is a moment of the GPU that lies between two readings of the host's clock. Between two
// anchors the map is a straight line, so the drift of the clocks cancels. Where in its bracket an
// anchor lies is decided once, when it is added: in the middle of what is left of the bracket after
// all recent brackets, hard bounds too, were carried over to it along every line that meets them.
// That makes little of a bracket that other work widened, and moves nothing that was placed before.
//
// Distances on the GPU come as the driver tells them, in 32-bit floats of milliseconds, and their
// rounding is part of the stated errors. Not thread-safe; adding may throw std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "timing/timeline.hpp"

namespace gpuprof::timing {

class ClockMap {
 public:
  // Adds an anchor that the GPU passed `elapsed_ms` after the one before it (the first has none),
  // later than the host's reading `before` and earlier than `after`. Brackets must not overlap.
  void add(float elapsed_ms, HostNanoseconds before, HostNanoseconds after);

  // The numbers of the anchors it has; newest() is 0 while there is none.
  [[nodiscard]] std::uint32_t oldest() const noexcept { return first_; }
  [[nodiscard]] std::uint32_t newest() const noexcept {
    return anchors_.empty() ? 0 : first_ + static_cast<std::uint32_t>(anchors_.size()) - 1;
  }

  // The anchor nearest to the moment `ms` after anchor `number`, which must be there.
  [[nodiscard]] std::uint32_t nearest(std::uint32_t number, double ms) const noexcept;

  // Where the moment `ms` after anchor `number` is on the host's clock. A moment before the oldest
  // anchor is placed by the clocks' mean drift since then.
  timeline::Placement place(std::uint32_t number, double ms,
                            timeline::HostMoment& moment) const noexcept;

  // Forgets anchors from before `moment`, but never the newest.
  void forget_before(HostNanoseconds moment) noexcept;

  // Forgets all; numbers go on where they were.
  void clear() noexcept;

 private:
  // Nanoseconds: `gpu` since the first anchor, the rest on the host's clock since base_.
  struct Anchor {
    double gpu;
    double before;
    double after;
    double at;
    double error;       // of `at`, to either side
    double link_error;  // of the distance to the anchor before
  };
  struct Bounds {
    double low;
    double high;
  };

  [[nodiscard]] Bounds carried_to(double gpu) const noexcept;
  void settle(Anchor& anchor) noexcept;
  [[nodiscard]] Anchor between(std::size_t right, double gpu, bool from_left) const noexcept;
  [[nodiscard]] Anchor before_oldest(double gpu) const noexcept;
  [[nodiscard]] std::size_t first_not_before(double gpu) const noexcept;

  std::deque<Anchor> anchors_;
  std::uint32_t first_ = 1;    // the number of anchors_.front()
  std::size_t in_window_ = 0;  // how many of the newest bound the next
  HostNanoseconds base_ = 0;
};

}  // namespace gpuprof::timing
