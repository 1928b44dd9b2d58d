// Which entry of a stack the current Python frame closes, where one object has several open.
//
// A frame is known by its address, which is compared, never followed. That of a plain function may
// come back with another's call; that of a generator or coroutine is its own for as long as it
// lives. Needs the interpreter lock.
#pragma once

#include <Python.h>

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

// Whether the frame `now` may close the entry though nothing says that it opened it. It may not
// where one of the two can be suspended: a generator closes what it opened itself, and nobody else
// does that for it while it is suspended.
//
// The address of a plain function's frame says nothing: the function may have returned, and its
// address be another's.
template <typename Entry>
bool is_plain(const Entry& entry, FrameMark now) noexcept {
  return entry.frame == nullptr || !(entry.frame_may_suspend || now.may_suspend);
}

template <typename Place>
struct FrameMatch {
  Place closed;  // the entry that `now` opened; else the newest, passing over suspended generators'
  Place newest;  // of the owner
};

// Looks through the owner's entries, newest first: from `top` on by `below(place)`, until `none`,
// which stands for no entry. Where `now` is null, the newest is the one to close.
template <typename Place, typename At, typename Below>
FrameMatch<Place> match_frame(const void* owner, const FrameMark* now, Place top, Place none, At at,
                              Below below) {
  FrameMatch<Place> match{none, none};
  for (Place place = top; place != none; place = below(place)) {
    const auto& entry = at(place);
    if (entry.owner != owner) continue;
    if (match.newest == none) match.newest = place;
    if (now == nullptr) return {place, place};
    if (entry.frame_may_suspend && entry.frame == now->frame) return {place, match.newest};
    if (match.closed == none && is_plain(entry, *now)) match.closed = place;
  }
  return match;
}

}  // namespace gpuprof::bindings
