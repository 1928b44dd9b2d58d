#include "bindings/ranges/scope_events.hpp"

#include <pybind11/pybind11.h>

#include "bindings/bind.hpp"
#include "bindings/python/callbacks.hpp"
#include "driver/process.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

constexpr std::uint32_t kNever = ~std::uint32_t{0};

// The process generation in which traces were opened as they should be, or could not be.
std::uint32_t opened_in = kNever;
// While one thread opens them, the others note their events already.
bool opening = false;

}  // namespace

bool trace_records() {
  if (trace::is_recording() || opening) return true;
  const std::uint32_t now = driver::fork_generation();
  if (opened_in == now) return false;
  opened_in = now;  // first, because what follows may come back here
  opening = true;
  try {
    notify(Callback::kOpenTraces);
  } catch (const std::exception&) {  // an interrupt: the next event tries again
    opened_in = kNever;
    opening = false;
    throw;
  }
  opening = false;
  return trace::is_recording();
}

void name_this_thread() {
  static thread_local std::uint32_t named_in = kNever;  // a forked child's thread is another one
  const std::uint32_t now = driver::fork_generation();
  if (named_in == now) return;
  named_in = now;
  notify(Callback::kNameThread);
}

void bind_trace_scope(py::module_& module) {
  ranges::connect_samples_to_traces();
  module.def(
      "_trace_wanted",
      [](bool on) {
        set_listener(kTrace, on);
        opened_in = kNever;
      },
      py::arg("on"));
  module.def("_trace_records", [] { return listens(kTrace) && trace_records(); });
}

}  // namespace gpuprof::bindings
