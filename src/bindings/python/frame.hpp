// The Python frame that runs now, as a mark to tell the openings of one object apart.
//
// The address is compared, never followed. That of a plain function may come back with another's
// call; that of a generator or coroutine is its own for as long as it lives. Needs the interpreter
// lock.
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

}  // namespace gpuprof::bindings
