// What is known of the driver and of this build, as plain data.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <csignal>
#include <cstdlib>

#include "bindings/bind.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"
#include "bindings/python/objects.hpp"
#include "driver/cuda_table.hpp"
#include "driver/process.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using namespace py::literals;

namespace {

py::dict driver_info() {
  const driver::DriverInfo info = initialising(driver::driver_info);
  py::dict result;
  result["available"] = info.available;
  const auto text_or_none = [](const std::string& text) {
    return text.empty() ? py::object(py::none()) : py::object(from_utf8(text));
  };
  result["reason"] = from_utf8(info.reason);
  result["path"] = text_or_none(info.path);
  result["override"] = text_or_none(info.override_path);
  result["version"] = info.version == 0 ? py::object(py::none()) : py::int_(info.version);
  py::list tried;
  for (const std::string& candidate : info.tried) tried.append(from_utf8(candidate));
  result["tried"] = tried;
  result["missing"] = info.missing;
  emit_pending_warnings();
  return result;
}

py::dict build_info() {
  return py::dict("version"_a = GPUPROF_VERSION, "compiler"_a = __VERSION__,
                  "cuda_headers"_a = std::to_string(CUDA_VERSION / 1000) + "." +
                                     std::to_string(CUDA_VERSION % 1000 / 10),
                  "pybind11"_a = std::to_string(PYBIND11_VERSION_MAJOR) + "." +
                                 std::to_string(PYBIND11_VERSION_MINOR) + "." +
                                 PYBIND11_TOSTRING(PYBIND11_VERSION_PATCH));
}

// Has the process end by SIGINT, whatever its exit code is, once the interpreter is finalized. The
// interpreter does so itself only for a program that a KeyboardInterrupt has ended.
void exit_by_interrupt() {
  std::atexit([] {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  });
}

}  // namespace

void bind_driver(py::module_& module) {
  module.def("driver_info", &driver_info,
             "What is known of the CUDA driver. Opens and initialises it if it is there.");
  module.def("build_info", &build_info, "How this module was built.");
  module.def("_fork_generation", &driver::fork_generation);
  module.def("_exit_by_interrupt", &exit_by_interrupt);
  module.def("_forget_warnings", &driver::forget_warnings);
}

}  // namespace gpuprof::bindings
