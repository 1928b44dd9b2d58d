// The parts of the extension module, one function for each file that binds something.
#pragma once

#include <pybind11/pybind11.h>

namespace gpuprof::bindings {

void bind_errors(pybind11::module_& module);
void bind_driver(pybind11::module_& module);
void bind_streams(pybind11::module_& module);
void bind_timing_sample(pybind11::module_& module);
void bind_timing_budget(pybind11::module_& module);
void bind_timing_scope(pybind11::module_& module);
void bind_timing_timer(pybind11::module_& module);
void bind_timing_event(pybind11::module_& module);
void bind_timing_statistics(pybind11::module_& module);
void bind_timing_device(pybind11::module_& module);
void bind_timing_listeners(pybind11::module_& module);
void bind_timing_idle(pybind11::module_& module);
void bind_watch(pybind11::module_& module);
void bind_nvtx_annotation(pybind11::module_& module);
void bind_nvtx_functions(pybind11::module_& module);
void bind_decorated(pybind11::module_& module);
void bind_trace_writer(pybind11::module_& module);
void bind_trace_events(pybind11::module_& module);
void bind_trace_scope(pybind11::module_& module);
void bind_trace_recorder(pybind11::module_& module);
void bind_graphs_capture(pybind11::module_& module);
void bind_graphs_graph(pybind11::module_& module);
void bind_graphs_nodes(pybind11::module_& module);
void bind_graphs_scalar(pybind11::module_& module);
void bind_array_desc(pybind11::module_& module);
void bind_guards(pybind11::module_& module);
void bind_cache_entry(pybind11::module_& module);
void bind_callable(pybind11::module_& module);
void bind_cupti(pybind11::module_& module);
void bind_callers(pybind11::module_& module);

}  // namespace gpuprof::bindings
