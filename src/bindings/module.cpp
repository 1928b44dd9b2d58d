#include "bindings/parts.hpp"

PYBIND11_MODULE(_core, module) {
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
}
