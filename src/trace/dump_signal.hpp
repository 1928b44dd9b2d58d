// Signals that ask for a dump of the flight recorders.
//
// The handler only counts, and then calls the one that was there before; the writer thread sees the
// count. So it is safe wherever the signal comes, and works while the program hangs in a call. A
// signal that would have ended the program (such as SIGTERM, without a handler) ends it once all
// recorders that watch it have answered. In a process that has no recorder of its own, such as a
// forked child, the signal does what it did before.
#pragma once

#include <cstdint>

namespace gpuprof::trace {

// Whether a handler of the program may return from it: not one of a fault, and one that can be
// caught.
bool can_watch_signal(int number) noexcept;

// Counts the signal from now on. Each call is undone by one of unwatch_signal(). Any thread; throws
// std::system_error.
void watch_signal(int number);
void unwatch_signal(int number) noexcept;

// How many came to this process.
std::uint64_t signals_seen(int number) noexcept;

// A recorder that watches it has done what it was asked for. May end the process.
void answer_signal(int number) noexcept;

}  // namespace gpuprof::trace
