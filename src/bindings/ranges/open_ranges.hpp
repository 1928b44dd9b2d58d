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

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "driver/host_clock.hpp"
#include "nvtx/range.hpp"
#include "trace/event.hpp"

// Which entry of a stack the current Python frame closes, where one object has several open.
//
// A frame is known by its address, which is compared, never followed. That of a plain function may
// come back with another's call; that of a generator or coroutine is its own for as long as it
// lives.
namespace gpuprof::bindings {

struct FrameMark {
  const void* frame = nullptr;
  bool may_suspend = false;  // a generator or a coroutine: it can be left and come back
};

inline FrameMark current_frame() {
  PyFrameObject* frame = PyEval_GetFrame();
  if (frame == nullptr) return {};
  PyCodeObject* code = PyFrame_GetCode(frame);
  constexpr int kSuspends = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
  const bool may_suspend = (code->co_flags & kSuspends) != 0;
  Py_DECREF(code);
  return {frame, may_suspend};
}

// Places in a stack, counted from 1; 0 is none.
struct FrameMatch {
  std::size_t closed;  // the entry that `now` opened; else the newest, passing over suspended ones
  std::size_t newest;  // of the owner
};

// Looks through the owner's entries, newest first. Where `now` is null, the newest is the one to
// close.
//
// A frame may not close an entry of which nothing says that it opened it where one of the two can
// be suspended: a generator closes what it opened itself, and nobody else does that for it while it
// is suspended. The address of a plain function's frame says nothing: the function may have
// returned, and its address be another's.
template <typename Entry>
FrameMatch match_frame(const std::vector<Entry>& stack, const void* owner, const FrameMark* now) {
  FrameMatch match{0, 0};
  for (std::size_t place = stack.size(); place != 0; --place) {
    const Entry& entry = stack[place - 1];
    if (entry.owner != owner) continue;
    if (match.newest == 0) match.newest = place;
    if (now == nullptr) return {place, place};
    if (entry.frame_may_suspend && entry.frame == now->frame) return {place, match.newest};
    const bool is_plain = entry.frame == nullptr || !(entry.frame_may_suspend || now->may_suspend);
    if (match.closed == 0 && is_plain) match.closed = place;
  }
  return match;
}

}  // namespace gpuprof::bindings

namespace gpuprof::bindings::open_ranges {

// What an owner shows while it is open.
struct NamedRange {
  nvtx::Range& range;
  PyObject* name;  // borrowed str
};

struct Closed {
  bool found = false;
  bool crossed = false;                        // others that were opened later were still open
  std::uint16_t depth = trace::kUnknownDepth;  // how many were open around it
  std::uint32_t tid = 0;              // the kernel's number of another thread that opened it
  driver::HostNanoseconds begin = 0;  // 0: no trace recorded then
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
