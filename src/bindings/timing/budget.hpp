// The budget of this process: which visits of named scopes are measured, and how many were not.
//
// Unnamed scopes, those with enabled=True or verify_stream=True, and Timers are measured in any
// case. Everything here needs the interpreter lock.
#pragma once

#include <atomic>

#include "timing/path.hpp"
#include "timing/sample.hpp"

namespace gpuprof::bindings::budget {

// What a plain scope that follows the switch looks at: whether that is on and there is no budget.
inline std::atomic<bool> all_measured{true};

inline bool is_on = false;
// After the switch was turned.
void note_switch() noexcept;

// Adds the visits that were left out to the statistics.
void hand_over_left_out() noexcept;
// Forgets them, and measures the first visits of each path again.
void begin_anew() noexcept;

// Learns what the entry of a sample has cost, and its exit, which began then, until now.
void read_cost(const timing::Sample& sample, timing::HostNanoseconds exit_began) noexcept;

}  // namespace gpuprof::bindings::budget
