// Flight recorders, for gpuprof._trace.flight_recorder.
#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

#include <memory>
#include <string>
#include <utility>

#include "bindings/bind.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"
#include "bindings/python/objects.hpp"
#include "bindings/ranges/json_args.hpp"
#include "ranges/limits.hpp"
#include "trace/dump_signal.hpp"
#include "trace/writer.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using trace::HostNanoseconds;

// Paths are bytes, as os.fsencode makes them.
namespace {

std::uint32_t open_recorder(bool from_start, py::handle process, std::int64_t rank,
                            std::int64_t world_size, py::handle args, std::size_t buffer_mib,
                            HostNanoseconds keep, std::size_t keep_bytes, const py::bytes& before,
                            const py::bytes& after, std::uint64_t max_dumps,
                            const py::typing::Tuple<py::int_, py::ellipsis>& signals) {
  trace::RecorderOptions options;
  options.sink = {true, from_start, buffer_mib << 20U};
  options.run = {utf8(process.ptr()), rank, world_size, members_of(args.ptr())};
  options.keep_bytes = keep_bytes;
  if (keep > 0) options.keep = keep;
  options.name = {std::string(before), std::string(after)};
  options.max_dumps = max_dumps;
  for (const py::handle signal : signals) options.signals.push_back(signal.cast<int>());
  return without_gil([&] { return trace::open(std::move(options)); });
}

py::bytes dump(std::uint32_t number, py::handle reason) {
  const std::shared_ptr<trace::FlightRecorder> recorder = trace::find_recorder(number);
  std::string why = utf8(reason.ptr());
  std::string done;
  if (recorder) {
    without_gil([&] {
      done = recorder->dump(std::move(why));
      trace::flush(number);  // so that its state tells of the dump
    });
  }
  emit_pending_warnings();
  return done;
}

void set_limits_of(std::uint32_t number, const py::typing::Dict<py::str, py::float_>& limits) {
  ranges::ScopeLimits all;
  for (const auto& [scope, ms] : limits) all.emplace_back(utf8(scope.ptr()), ms.cast<double>());
  ranges::set_limits(number, all);
}

}  // namespace

void bind_trace_recorder(py::module_& module) {
  module.def("_trace_open_recorder", &open_recorder, py::kw_only(), py::arg("from_start") = false,
             py::arg("process") = "", py::arg("rank") = 0, py::arg("world_size") = 1,
             py::arg("args") = py::none(), py::arg("buffer_mib"), py::arg("keep") = 0,
             py::arg("keep_bytes") = 0, py::arg("before") = py::bytes(),
             py::arg("after") = py::bytes(), py::arg("max_dumps") = 0,
             py::arg("signals") = py::tuple(),
             "Start a trace that is kept in memory; return its number.");
  module.def(
      "_trace_dump", &dump, py::arg("number"), py::arg("reason"),
      "Write what a recorder holds; wait for it and return its path, empty if there is none.");
  module.def("_trace_set_limits", &set_limits_of, py::arg("number"), py::arg("limits"));
  module.def("_trace_can_watch_signal", &trace::can_watch_signal, py::arg("number"));
  module.def("_trace_end", &trace::end, py::arg("number"));
}

}  // namespace gpuprof::bindings
