// While torch's profiler records, what gpuprof opens appears in its trace too.
//
// torch is never imported: Python says when its profiler was, and then kTorchImported stays set.
// All functions need the interpreter lock and may run Python code of torch's. Its failures are
// swallowed, since they are no business of the body; what is no Exception, an interrupt, is thrown
// as py::error_already_set.
#pragma once

#include <Python.h>

#include <cstdint>

#include "bindings/python/switches.hpp"

namespace gpuprof::bindings::torch_profiler {

// Sets kTorchImported. `names` is the dict of torch's module, which another thread may still fill.
void follow(PyObject* names);

// Whether the profiler records: one look into a dictionary. For when kTorchImported is set.
[[nodiscard]] bool is_recording() noexcept;

// Enters a torch.profiler.record_function of that name; an owned reference, or null.
PyObject* enter(PyObject* name);

// Leaves it and gives up the reference. Null does nothing.
void leave(PyObject* record);

}  // namespace gpuprof::bindings::torch_profiler

namespace gpuprof::bindings {

// Who is told of what opens now.
inline std::uint32_t listeners() {
  if (is_paused()) return 0;
  std::uint32_t told = listener_bits.load(std::memory_order_relaxed);
  if ((told & kTorchImported) != 0 && !torch_profiler::is_recording()) {
    told &= ~static_cast<std::uint32_t>(kTorchImported);
  }
  return told;
}

}  // namespace gpuprof::bindings
