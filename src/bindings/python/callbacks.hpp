// The Python functions of gpuprof that C++ calls. No other file of the bindings names one.
//
// All functions need the interpreter lock and run Python code: the first call imports the module.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include "driver/error.hpp"

namespace gpuprof::bindings {

struct PythonFunction {
  const char* module;
  const char* name;
  mutable PyObject* found = nullptr;
};

// All of them.
struct Callback {
  static constexpr PythonFunction kDecorate{"gpuprof._timing.decorate", "decorate"};
  static constexpr PythonFunction kNameOf{"gpuprof._timing.decorate", "name_of"};
  static constexpr PythonFunction kMakeScope{"gpuprof._timing.scope", "make_scope"};
  static constexpr PythonFunction kRemakeScope{"gpuprof._timing.scope", "remake_scope"};
  static constexpr PythonFunction kBeginMemory{"gpuprof._timing.memory", "begin"};
  static constexpr PythonFunction kEndMemory{"gpuprof._timing.memory", "end"};
  static constexpr PythonFunction kMemoryUse{"gpuprof._timing.memory", "use_of_sample"};
  static constexpr PythonFunction kSampleHtml{"gpuprof._display.notebook", "sample_html"};
  static constexpr PythonFunction kRemakeAnnotation{"gpuprof.nvtx", "remake_annotation"};
  static constexpr PythonFunction kPayload{"gpuprof.nvtx.payload", "payload"};
  static constexpr PythonFunction kPlainNumber{"gpuprof._graphs.device_scalar", "plain_number"};
  static constexpr PythonFunction kSameValue{"gpuprof._callable.leaves", "same_value"};
  static constexpr PythonFunction kAnother{"gpuprof._common.containers", "another"};
  static constexpr PythonFunction kWriterSpan{"gpuprof._trace.checks", "span"};
  static constexpr PythonFunction kTraceSpan{"gpuprof._trace.events", "trace_span"};
  static constexpr PythonFunction kOpenTraces{"gpuprof._trace.writer", "open_as_wanted"};
  static constexpr PythonFunction kNameThread{"gpuprof._trace.registry", "name_this_thread"};
  static constexpr PythonFunction kEnterSpan{"gpuprof._timing.spans", "enter"};
  static constexpr PythonFunction kLeaveSpan{"gpuprof._timing.spans", "leave"};
  static constexpr PythonFunction kCallListeners{"gpuprof._timing.listeners", "call_all"};
};
inline constexpr const char* kErrorsModule = "gpuprof.errors";

// The function, which stays alive once it was found. Borrowed; throws py::error_already_set.
PyObject* callback(const PythonFunction& function);

// Calls a function without arguments, found anew each time. Only an interrupt comes out of it.
void notify(const PythonFunction& function);

// What __reduce__ returns for an object with `name` and `_options`.
pybind11::tuple reduce_by(const PythonFunction& remake, pybind11::handle self);

// The instance of gpuprof.errors that stands for `error`.
pybind11::object make_exception(const driver::Error& error);

}  // namespace gpuprof::bindings
