#include "bindings/parts.hpp"

// The module's own entry point is below: this one is for the main interpreter only.
PYBIND11_MODULE(_core_main, module) {
  using namespace gpuprof::bindings;
  module.doc() = "The compiled part of gpuprof. Private: use the names in gpuprof.";
  bind_errors(module);
  bind_driver(module);
  bind_streams(module);
  bind_timing_sample(module);
  bind_timing_scope(module);
  bind_timing_timer(module);
  bind_timing_statistics(module);
  bind_timing_device(module);
  bind_timing_gate(module);
  bind_nvtx_annotation(module);
  bind_nvtx_functions(module);
  bind_trace_writer(module);
  bind_trace_events(module);
  bind_trace_scope(module);
  bind_trace_tools(module);
  bind_graphs_block(module);
  bind_graphs_capture(module);
  bind_graphs_graph(module);
  bind_graphs_nodes(module);
  bind_graphs_scalar(module);
  bind_array_facts(module);
  bind_callable_entry(module);
  bind_callable(module);
}

// A subinterpreter gets an ImportError on every Python; up to 3.11 pybind11 would wait for ever
// there.
extern "C" PYBIND11_EXPORT PyObject* PyInit__core() {
  if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
    PyErr_SetString(PyExc_ImportError,
                    "gpuprof does not support subinterpreters; import it in the main interpreter");
    return nullptr;
  }
  return PyInit__core_main();
}
