// What a `stream=` argument means.
//
// None is the framework's current stream: torch's, if torch is imported and has initialised CUDA,
// unless that is the default stream and CuPy's is not; else CuPy's; else the legacy default stream.
// No framework is ever imported or initialised from here. All functions need the interpreter lock.
// They run Python code, in which a daemon thread may end at exit: none of them may be noexcept.
#pragma once

#include <Python.h>

#include <cstdint>

namespace gpuprof::bindings {

struct CurrentStream {
  std::uintptr_t handle = 0;
  int ordinal = 0;  // the device that a default stream belongs to on a thread without a context
  bool of_framework = false;  // a framework is there, and this is its current stream
};

// The stream that None stands for now. Never raises: a framework that fails is passed over.
//
// Who uses the handle later gives `owner`: it becomes a new reference to the object that the stream
// lives as long as, or stays null. Streams that torch has made live as long as the process.
CurrentStream current_stream(PyObject** owner = nullptr);

// Whether a framework of this process works on a device that has a live context, for threads that
// have none current.
bool framework_is_live();

// The handle of an int, of an object with __cuda_stream__, .cuda_stream or .ptr, or of what
// converts to an int by __index__. Throws py::type_error, py::value_error, or what the object
// raised.
std::uintptr_t stream_handle(PyObject* stream);

}  // namespace gpuprof::bindings
