// What annotations and timer scopes have open, thread by thread, and in which order.
//
// NVTX's ranges are stacks: a pop closes the newest range of the thread in its domain, whoever asks
// for it. Python closes in any order, because generators and tasks interleave, and sometimes on
// another thread. So a range that is left while others are open on top of it keeps its place and is
// popped when they are gone; one that is left on another thread is popped by its own, when that
// next opens or closes something. What an ended thread left open is dropped. A tool thus sees such
// a range longer than it was; nobody's range is ever popped for it.
//
// All functions need the interpreter lock, and run Python code where torch's profiler records.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bindings/ranges/frame_match.hpp"
#include "driver/host_clock.hpp"
#include "nvtx/range.hpp"

namespace gpuprof::bindings::open_ranges {

// What an owner shows while it is open.
struct NamedRange {
  nvtx::Range& range;
  PyObject* name;  // borrowed str
};

inline constexpr std::uint16_t kUnknownDepth = 0xFFFF;

struct Closed {
  bool found = false;
  bool crossed = false;                 // others that were opened later were still open
  std::uint16_t depth = kUnknownDepth;  // how many were open around it
  std::uint32_t tid = 0;                // the kernel's number of another thread that opened it
  driver::HostNanoseconds begin = 0;    // 0: no trace recorded then
};

// How many are open on all threads.
inline std::size_t count = 0;

// Opens `shown` for those in `told` (bits of Listener; none is fine and keeps the order). `owner`
// is what close() finds it by; the frame tells several of one owner apart. Throws only for lack of
// memory and for interrupts, and has opened nothing then.
void open(const void* owner, const NamedRange& shown, std::uint32_t told, FrameMark frame = {});

// Closes the newest range of `owner` on this thread, the one that the current frame opened if
// `several` may be open; one of another thread, with a warning once, if there is none here and
// `elsewhere` allows it. An interrupt may come out; the range is closed then, too.
Closed close(const void* owner, bool several, bool elsewhere = true);

// Whether `owner` has a range open on this thread that was pushed to NVTX.
[[nodiscard]] bool is_pushed(const void* owner) noexcept;

// For an owner that goes away while it is open: its ranges are closed as far as they can be.
void abandon(const void* owner);

}  // namespace gpuprof::bindings::open_ranges
