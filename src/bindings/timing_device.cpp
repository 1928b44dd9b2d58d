// The device behind the clocks: whether it is there, what it is, what an empty interval reads.
#include "timing/device.hpp"

#include <pybind11/pybind11.h>

#include <memory>

#include "bindings/gil.hpp"
#include "bindings/parts.hpp"
#include "timing/device_buffer.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

void bind_timing_device(py::module_& module) {
  module.def("require_cuda", &timing::device::require,
             "Initialise CUDA. Raises CudaUnavailableError where there is none.");
  module.def("cuda_in_use", &timing::device::initialised_in_process,
             "Whether something in this process has initialised CUDA. Initialises nothing.");
  module.def("cuda_device", &timing::device::current_ordinal,
             "The index of the current context's device, -1 without one.");
  module.def(
      "devices",
      [] {
        py::list result;
        for (const auto& device : timing::device::devices()) {
          py::dict entry;
          entry["index"] = device.index;
          entry["name"] = py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
              device.name.data(), static_cast<Py_ssize_t>(device.name.size()), "replace"));
          entry["uuid"] = device.uuid;
          entry["total_memory"] = device.total_memory;
          entry["cc"] = py::make_tuple(device.major, device.minor);
          entry["sms"] = device.multiprocessors;
          result.append(entry);
        }
        return result;
      },
      "The devices that the driver shows, as dicts. Initialises CUDA.");
  module.def(
      "calibrate",
      [](int device) {
        timing::device::Calibration result;
        without_gil([&] { result = timing::device::calibrate(device); });
        py::dict dict;
        dict["device"] = result.device;
        dict["tick_ns"] = result.tick_ns;
        dict["idle_ns"] = result.idle_ns;
        dict["queued_ns"] = result.queued_ns;
        dict["pairs"] = result.pairs;
        return dict;
      },
      py::arg("device"), "What an empty interval reads on a device, as a dict. Waits.");
  module.def(
      "_release_idle", &timing::device::release_idle,
      "Destroy pooled events and let go of idle contexts; the number of event pairs in use.");
  module.def("_samples_in_memory", &timing::samples_in_memory);
  py::class_<timing::DeviceBuffer>(module, "DeviceBuffer",
                                   "Device memory that can be filled, as work for demonstrations.")
      .def(py::init<std::size_t>(), py::arg("nbytes"))
      .def("fill", &timing::DeviceBuffer::fill, py::arg("repeats"),
           "Write the whole buffer `repeats` times on the legacy default stream, without waiting.");
}

}  // namespace gpuprof::bindings
