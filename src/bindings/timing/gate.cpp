// gpuprof._core._Gate: a gate in front of a stream, for benchmarks.
#include "timing/gate.hpp"

#include <pybind11/pybind11.h>

#include <memory>

#include "bindings/bind.hpp"
#include "bindings/python/gil.hpp"
#include "timing/device.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

void bind_timing_gate(py::module_& module) {
  py::class_<timing::Gate>(module, "_Gate",
                           "Holds back what is queued on a stream, until it is opened or a limit "
                           "is over.")
      .def(py::init([](std::uintptr_t stream, int device) {
             std::unique_ptr<timing::Gate> gate;
             without_gil([&] { gate = std::make_unique<timing::Gate>(stream, device); });
             return gate;
           }),
           py::arg("stream"), py::arg("device") = 0)
      .def(
          "close",
          [](timing::Gate& gate, double limit_s) {
            gate.close(static_cast<timing::HostNanoseconds>(limit_s * 1e9));
          },
          py::arg("limit_s"), "Close it for at most `limit_s` seconds.")
      .def("open", &timing::Gate::open,
           "Open it. False if the limit was over before, or it was not closed.")
      .def_property_readonly("closed", &timing::Gate::closed, "Whether nobody has opened it yet.");
  module.def(
      "_synchronize",
      [](std::uintptr_t stream, int device) {
        without_gil([&] { timing::device::synchronize(stream, device); });
      },
      py::arg("stream"), py::arg("device") = 0,
      "Wait for all work in the stream's context, unless the stream is being captured.");
}

}  // namespace gpuprof::bindings
