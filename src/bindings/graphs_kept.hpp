// Python objects that a CUDA graph needs until its last launch is over.
//
// The driver says when that is, possibly on a thread of its own that may neither call the driver nor
// hold Python's lock. So it only puts the bundle on a list, and the objects are let go soon after on
// a thread of Python's: by a pending call of the interpreter, or by the next drain_kept(). A process
// that exits lets go of nothing any more.
#pragma once

#include <pybind11/pybind11.h>

namespace gpuprof::bindings {

// A bundle of objects. Its holder may add to it, with the interpreter lock, until release() was
// called.
struct Kept;

// A bundle of the tuple's objects.
Kept* make_kept(const pybind11::tuple& objects);
void add_kept(Kept& kept, pybind11::handle object);

// For the driver: any thread, without the interpreter lock. `kept` is a Kept*.
void release_kept(void* kept);

// Lets go of what was released, in the order of the bundles. Needs the interpreter lock; runs
// destructors of any kind.
void drain_kept();

}  // namespace gpuprof::bindings
