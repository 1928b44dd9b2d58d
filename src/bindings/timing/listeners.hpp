// When functions of Python that listen to samples are called: gpuprof.on_sample.
//
// They are the user's code, so they run where anything may: with the interpreter lock, in no call
// of the driver's and under no lock; after a scope's exit or a graph's launch is over, and in calls
// that read (stats(), flush(), a sample's ms). A listener's exceptions stay in Python's part; what
// comes out is an interrupt, as py::error_already_set. A daemon thread may end in here at exit: no
// caller may be noexcept, or own a Python object by a destructor.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>

#include "bindings/python/switches.hpp"
#include "timing/listeners.hpp"
#include "timing/sample.hpp"

namespace gpuprof::bindings {

[[nodiscard]] inline bool is_heard() noexcept {
  return timing::listeners::attention.load(std::memory_order_relaxed) != 0;
}

// Calls the listeners if a batch is due. For the end of a scope's exit or a graph's launch, where
// is_heard().
void call_listeners_after_exit(const timing::Sample& sample);
void call_listeners_after_launch();

// Calls the listeners with all that is finished, unless this runs inside of one.
void call_listeners();

inline void call_listeners_after_read() {
  if (timing::listeners::queued.load(std::memory_order_relaxed) != 0) call_listeners();
}

// Tells those who make spans that a scope is entered, which is a span's begin, and left. The sample
// has its path. Only an interrupt comes out of it.
void enter_span(PyObject* sample);
void leave_span(const timing::SampleRef& sample);
// Entered and not left.
inline std::size_t open_spans = 0;

// The cell that a notebook runs now, counted from 1; 0: no samples are kept for a line under it.
inline std::uint32_t notebook_cell = 0;

// Keeps the last sample of an unnamed scope that goes away in the cell that made it, unless
// somebody holds it.
void keep_unheld(timing::SampleRef last) noexcept;

}  // namespace gpuprof::bindings
