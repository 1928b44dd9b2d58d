// Which visits of a scope are measured where measuring may take only a share of the time.
//
// Each visit is measured with probability 1/k, independently of all others: geometric gaps between
// the measured ones, so that nothing aliases with a period of the program. k follows the load: the
// paths share the budget so that each may spend up to the same level (water-filling), at the end of
// a window of 0.1 to 1 s from the rates in it, and a path that runs ahead of its level doubles its
// k at once. k depends on the past alone, so that a sum in which each measured visit counts k times
// is unbiased. The first visits of a path are always measured.
//
// A policy without a clock, a lock or a driver: time is an argument, and the caller serialises.
#pragma once

#include <cstdint>
#include <vector>

#include "driver/host_clock.hpp"

namespace gpuprof::timing {

using driver::HostNanoseconds;

// What is known of the visits of one path.
struct Visits {
  static constexpr std::uint32_t kFirst = 16;

  std::uint64_t gap = 0;   // visits to leave out before one is measured
  std::uint64_t seen = 0;  // in this window: those that were decided here
  std::uint32_t one_in = 1;
  std::uint32_t first = kFirst;  // visits that are measured in any case
  std::uint64_t measured = 0;    // of `seen`
  double spent_ns = 0.0;         // in this window, visits inside included
  double per_visit_ns = 0.0;     // what a measured visit costs, those inside included; 0: not known
  double limit_ns = 0.0;         // how far ahead of the level it may be before its k doubles
  double own_ns = 0.0;           // what measuring one visit costs by itself; 0: not known
  std::uint32_t taken = 0;       // how many were measured, for the choice of those to be timed
  bool known = false;            // to the budget

  // Visits that were left out, and not yet added to the statistics; of these, those that raised.
  std::uint64_t left_out = 0;
  std::uint64_t raised = 0;
  std::uint16_t clock = 0;  // of the last measured visit
};

// What an open visit says for those inside it.
struct Visit {
  Visits* paid_by = nullptr;  // whose allowance the visits inside are taken from
  std::uint32_t inside = 1;   // their weight; 0: they are left out, 1: each path decides
  std::uint32_t draw = 0;     // the decision that they share
};

class Budget {
 public:
  // Makes the gaps others than those of another seed.
  void seed(std::uint64_t seed) noexcept { random_ = seed; }

  // The share of the time that measuring may take; all paths begin anew.
  void set_share(double share, HostNanoseconds now);

  // The weight of this visit, which no other around it decides; 0: it is left out.
  std::uint32_t decide(Visits& visits) {
    ++visits.seen;
    if (visits.gap == 0) return measure(visits);
    --visits.gap;
    return 0;
  }
  // Whether a visit that was left out should look at the clock, and what it does then. Of few
  // visits in a window the second one does, so that k comes down where a hot path becomes rare.
  [[nodiscard]] static bool looks(const Visits& visits) noexcept {
    return visits.seen % 64 == 0 || (visits.seen & (visits.seen - 1)) == 0;
  }
  void look(HostNanoseconds now) {
    if (now - began_ >= window_) end_window(now);
  }
  // One of the first visits of a path: measured in any case.
  bool is_first(Visits& visits) { return visits.first != 0 && take_first(visits); }

  // Whether it has spent its part of the window, as one visit that stands for others can alone.
  [[nodiscard]] bool is_used_up(const Visits& visits) const noexcept {
    return visits.spent_ns > level_ * static_cast<double>(window_);
  }

  // Says what measuring has cost. `is_own`: a visit that `visits` decided itself.
  void charge(Visits& visits, double cost_ns, bool is_own, HostNanoseconds now);

  // A new number for the decision to measure a visit with a weight above 1.
  std::uint32_t next_draw() noexcept { return ++draws_; }

  // The first visits come again: for a reset of the statistics.
  void begin_anew() noexcept;

 private:
  std::uint32_t measure(Visits& visits);
  bool take_first(Visits& visits);
  void end_window(HostNanoseconds now);
  void begin_window(HostNanoseconds now);
  void set_one_in(Visits& visits, std::uint32_t one_in) noexcept;
  [[nodiscard]] double level_for(double share);
  double uniform() noexcept;

  std::uint64_t random_ = 0;
  std::uint32_t draws_ = 0;
  double share_ = 1.0;
  double level_ = 1.0;  // of the time, that each path may spend
  double owed_ns_ = 0.0;
  double spent_ns_ = 0.0;
  HostNanoseconds began_ = 0;
  HostNanoseconds window_ = 0;
  std::vector<Visits*> all_;
  std::vector<double> costs_;
};

}  // namespace gpuprof::timing
