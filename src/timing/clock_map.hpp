// A map from one GPU's time to the host's clock, from anchors. Calls no driver.
//
// An anchor is a GPU time between two readings of the host's clock: its bracket. Between two
// anchors the map is a straight line, so the drift of the clocks cancels. Where in its bracket an
// anchor lies is decided once, when it is added: in the middle of the part that some straight line
// through all recent brackets reaches. So a bracket that other work widened does little harm, and
// placed times never move.
//
// GPU distances are the driver's 32-bit floats of milliseconds; their rounding is part of the
// stated errors. Not thread-safe; adding may throw std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "timing/timeline.hpp"

namespace gpuprof::timing {

class ClockMap {
 public:
  // Adds an anchor that the GPU reached `elapsed_ms` after the previous anchor (ignored for the
  // first), between the host's readings `before` and `after`. Brackets must not overlap.
  void add(float elapsed_ms, HostNanoseconds before, HostNanoseconds after);

  // The numbers of the first and the last anchor; newest() is 0 without anchors.
  [[nodiscard]] std::uint32_t oldest() const noexcept { return first_; }
  [[nodiscard]] std::uint32_t newest() const noexcept {
    return anchors_.empty() ? 0 : first_ + static_cast<std::uint32_t>(anchors_.size()) - 1;
  }

  // The anchor nearest to `ms` after anchor `number`, which must exist.
  [[nodiscard]] std::uint32_t nearest(std::uint32_t number, double ms) const noexcept;

  // The host time of `ms` after anchor `number`. A time before the oldest anchor is placed by the
  // clocks' mean drift since then.
  timeline::Placement place(std::uint32_t number, double ms,
                            timeline::HostMoment& moment) const noexcept;

  // Deletes anchors from before `moment`, but never the newest.
  void forget_before(HostNanoseconds moment) noexcept;

  // Deletes all; numbers continue.
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
  struct Point {
    double at;
    double error;
  };
  struct Bounds {
    double low;
    double high;
  };

  [[nodiscard]] Bounds carried_to(double gpu) const noexcept;
  void settle(Anchor& anchor) noexcept;
  [[nodiscard]] Point between(std::size_t right, double gpu, bool from_left) const noexcept;
  [[nodiscard]] Point before_oldest(double gpu) const noexcept;
  [[nodiscard]] std::size_t first_not_before(double gpu) const noexcept;

  std::deque<Anchor> anchors_;
  std::uint32_t first_ = 1;    // the number of anchors_.front()
  std::size_t in_window_ = 0;  // how many of the newest bound the next
  HostNanoseconds base_ = 0;
};

}  // namespace gpuprof::timing
