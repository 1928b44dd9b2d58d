// The device behind the clocks: whether it is there, what it is, what an empty interval reads; and
// the gate in front of a stream, for benchmarks.
#include "timing/device.hpp"
#include "driver/devices.hpp"

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>

#include "bindings/bind.hpp"
#include "bindings/python/gil.hpp"
#include "bindings/python/objects.hpp"
#include "bindings/python/queueing.hpp"
#include "bindings/timing/sample.hpp"
#include "graphs/device_scalar.hpp"
#include "timing/gate.hpp"
#include "timing/l2_flush_buffer.hpp"
#include "timing/timeline.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using namespace py::literals;

namespace {

// Destroys without the lock: freeing memory may wait for the GPU, and that for another thread.
struct WithoutGil {
  template <typename T>
  void operator()(T* object) const {
    without_gil([&] { delete object; });
  }
};
template <typename T>
using Freed = std::unique_ptr<T, WithoutGil>;

// Where the GPU time of a sample that is done begins: (nanoseconds of the host's clock, error),
// None while no anchor has followed, False for never. For tests: the sample's type is not checked.
py::object place_of(py::handle sample) {
  timing::timeline::HostMoment found;
  switch (timing::timeline::place(sample_in(sample.ptr())->gpu_begin, found)) {
    case timing::timeline::Placement::kPlaced:
      return py::make_tuple(found.at, found.error);
    case timing::timeline::Placement::kNotYet:
      return py::none();
    default:
      return py::bool_(false);
  }
}

void bind_timeline(py::module_& module) {
  module.def(
      "_timeline_want", [](bool on) { without_gil([&] { timing::timeline::want(on); }); },
      py::arg("on"));
  module.def("_timeline_refresh", [] { without_gil([] { timing::timeline::refresh(); }); });
  module.def("_place_of", &place_of, py::arg("sample"));
}

void fill_buffer(timing::DeviceBuffer& buffer, int repeats, std::uintptr_t stream) {
  queue_without_gil({stream}, [&] { buffer.fill(repeats, stream); });
}

void bind_buffer(py::module_& module) {
  py::class_<timing::DeviceBuffer, Freed<timing::DeviceBuffer>>(module, "DeviceBuffer")
      .def(py::init([](std::size_t nbytes) {
             return without_gil([&] { return new timing::DeviceBuffer(nbytes); });
           }),
           py::arg("nbytes"))
      .def("fill", &fill_buffer, py::arg("repeats"), py::arg("stream") = 0,
           "Write the whole buffer `repeats` times on a stream, by its handle, without waiting.");
}

void bind_gate(py::module_& module) {
  py::class_<timing::Gate, Freed<timing::Gate>>(module, "_Gate")
      .def(py::init([](std::uintptr_t stream, int device) {
             return without_gil([&] { return new timing::Gate(stream, device); });
           }),
           py::arg("stream"), py::arg("device") = 0)
      .def(
          "close",
          [](timing::Gate& gate, double limit_s) {
            without_gil([&] { gate.close(static_cast<timing::HostNanoseconds>(limit_s * 1e9)); });
          },
          py::arg("limit_s"))
      .def("open", &timing::Gate::open)
      .def_property_readonly("closed", &timing::Gate::closed);
  module.def(
      "_synchronize",
      [](std::uintptr_t stream, int device) {
        without_gil([&] { timing::device::synchronize(stream, device); });
      },
      py::arg("stream"), py::arg("device") = 0,
      "Wait for all work in the stream's context, unless the stream is being captured.");
}

}  // namespace

void bind_timing_device(py::module_& module) {
  module.def(
      "require_cuda", [] { initialising(timing::device::require); },
      "Initialise CUDA. Raises CudaUnavailableError where there is none.");
  module.def(
      "cuda_in_use",
      [] { return timing::device::initialised_in_process() || timing::device::poisoned(); },
      "Whether something in this process has initialised CUDA, also if an error has poisoned it "
      "since. Initialises nothing.");
  module.def("cuda_device", &driver::current_ordinal,
             "The index of the current context's device, -1 without one.");
  module.def(
      "devices",
      [] {
        const auto devices = without_gil(driver::devices);
        py::list result;
        for (const auto& device : devices) {
          result.append(py::dict("index"_a = device.index, "name"_a = from_utf8(device.name),
                                 "uuid"_a = device.uuid, "total_memory"_a = device.total_memory,
                                 "cc"_a = py::make_tuple(device.major, device.minor),
                                 "sms"_a = device.multiprocessors, "l2_bytes"_a = device.l2_bytes));
        }
        return result;
      },
      "The devices that the driver shows, as dicts. Initialises CUDA.");
  module.def(
      "calibrate",
      [](int device) {
        const auto result = without_gil([&] { return timing::device::calibrate(device); });
        return py::dict("device"_a = result.device, "tick_ns"_a = result.tick_ns,
                        "idle_ns"_a = result.idle_ns, "queued_ns"_a = result.queued_ns,
                        "pairs"_a = result.pairs);
      },
      py::arg("device"), "What an empty interval reads on a device, as a dict. Waits.");
  module.def(
      "_release_idle",
      [] {
        return without_gil([] {
          graphs::release_idle_scalars();
          return timing::device::release_idle();
        });
      },
      "Destroy pooled events and let go of idle contexts; the number of event pairs in use.");
  module.def("_samples_in_memory", &timing::samples_in_memory);
  bind_timeline(module);
  bind_buffer(module);
  bind_gate(module);
}

}  // namespace gpuprof::bindings
