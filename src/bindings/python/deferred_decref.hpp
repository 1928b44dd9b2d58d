// Python objects that a CUDA graph needs until its last launch is over.
//
// What finds that out may be without Python's lock and inside a call of the driver's. So it only
// puts the bundle on a list, and the objects are let go by the next drain_kept(): every call that
// makes, closes or watches a graph comes by, and so do gpuprof.flush() and stats().
#pragma once

#include <pybind11/pybind11.h>

namespace gpuprof::bindings {

// A bundle of objects.
struct KeepAlive;

// Of the tuple's objects. With the interpreter lock.
KeepAlive* make_keep_alive(const pybind11::tuple& objects);

// Any thread, without the interpreter lock. `bundle` is a KeepAlive*.
void release_kept(void* bundle);

// Looks which replays are over, and lets go of what was released, in the order of the bundles.
// Cheap where there is nothing. Needs the interpreter lock; runs destructors of any kind.
void drain_kept();

// The same from the main thread, a moment later, for a caller that must not run destructors.
void drain_kept_soon() noexcept;

}  // namespace gpuprof::bindings
