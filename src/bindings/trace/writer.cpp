// The open traces, for gpuprof._trace.writer: opening, closing, and events that name their trace.
#include "trace/writer.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

#include <map>
#include <string>
#include <utility>

#include "bindings/bind.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"
#include "bindings/python/objects.hpp"
#include "bindings/ranges/json_args.hpp"
#include "trace/names.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using trace::Event;
using trace::HostNanoseconds;
using trace::Kind;

namespace {

py::typing::Dict<py::str, py::object> state_dict(const trace::State& state) {
  py::typing::Dict<py::str, py::object> result;
  result["open"] = state.open;
  result["error"] = state.failed ? py::object(py::str(state.error)) : py::none();
  result["events"] = state.events;
  result["dropped"] = state.dropped;
  result["unplaced"] = state.unplaced;
  result["bytes"] = state.bytes;
  result["gpu_error_ns"] = state.gpu_error;
  result["writer_cpu_ns"] = state.writer_cpu;
  if (!state.is_ring) return result;
  result["held"] = state.held;
  result["reaches_back_ns"] = state.reaches_back;
  result["dumps"] = state.dumps;
  return result;
}

std::uint32_t open_trace(int descriptor, py::handle where, bool collects, bool from_start,
                         py::handle process, std::int64_t rank, std::int64_t world_size,
                         py::handle args, std::size_t buffer_mib) {
  trace::OutputOptions options;
  options.descriptor = descriptor;
  options.where = utf8(where.ptr());
  options.sink = {collects, from_start, buffer_mib << 20U};
  options.run = {utf8(process.ptr()), rank, world_size, members_of(args.ptr())};
  return without_gil([&] { return trace::open(std::move(options)); });
}

template <trace::State (*kFunction)(std::uint32_t)>
py::typing::Dict<py::str, py::object> waited(std::uint32_t number) {
  const trace::State state = without_gil([&] { return kFunction(number); });
  emit_pending_warnings();
  return state_dict(state);
}

// An event of a caller's own, whose times are of time.monotonic_ns(); a moment is its end.
void note_event(const std::string& kind, std::uint32_t number, py::handle name, py::handle category,
                HostNanoseconds begin, HostNanoseconds end, std::uint32_t tid, py::handle args,
                std::uint64_t id) {
  static const std::map<std::string, Kind> kinds{
      {"slice", Kind::kSlice},     {"instant", Kind::kInstant}, {"counter", Kind::kCounter},
      {"start", Kind::kFlowStart}, {"step", Kind::kFlowStep},   {"end", Kind::kFlowEnd}};
  Event event;
  event.kind = kinds.at(kind);
  event.target = number;
  event.begin = begin;
  event.end = end;
  event.tid = tid;
  event.depth = trace::kUnknownDepth;
  event.id = id;
  const std::string shown = category.is_none() ? "" : utf8(category.ptr());
  trace::note(event, utf8(name.ptr()), shown, members_of(args.ptr()));
}

}  // namespace

void bind_trace_writer(py::module_& module) {
  module.def(
      "_trace_open", &open_trace, py::arg("descriptor"), py::arg("where"), py::arg("collects"),
      py::arg("from_start"), py::arg("process"), py::arg("rank"), py::arg("world_size"),
      py::arg("args"), py::arg("buffer_mib"),
      "Start a trace in an empty file, which is lent until it is closed; return its number.");
  module.def("_trace_close", &waited<&trace::close>, py::arg("number"));
  module.def("_trace_flush", &waited<&trace::flush>, py::arg("number"));
  module.def(
      "_trace_state", [](std::uint32_t number) { return state_dict(trace::state(number)); },
      py::arg("number"));
  module.def("_trace_event", &note_event, py::arg("kind"), py::arg("number"), py::arg("name"),
             py::arg("category"), py::arg("begin"), py::arg("end"), py::arg("tid"), py::arg("args"),
             py::arg("id") = 0);
  module.def(
      "_trace_name_thread",
      [](std::uint32_t tid, py::handle name) { trace::name_thread(tid, utf8(name.ptr())); },
      py::arg("tid"), py::arg("name"));
  module.def("_host_now", &timing::host_now, "The host's clock, in nanoseconds.");
}

}  // namespace gpuprof::bindings
