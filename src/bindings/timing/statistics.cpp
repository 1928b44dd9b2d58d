// stats, flush and reset as plain data; gpuprof._timing.scope makes objects of it.
#include "timing/statistics.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include "bindings/bind.hpp"
#include "bindings/graphs/launch.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"
#include "bindings/python/keep_alive.hpp"
#include "bindings/python/objects.hpp"
#include "bindings/ranges/range_attributes.hpp"
#include "bindings/ranges/scope_stack.hpp"
#include "bindings/timing/budget.hpp"
#include "bindings/timing/listeners.hpp"
#include "bindings/timing/sample.hpp"
#include "bindings/timing/work.hpp"
#include "timing/device.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using namespace py::literals;
using timing::Summary;

namespace {

void wait_and_drain() {
  const std::vector<timing::SampleRef> tails = timing::device::pending_tails();
  for (const timing::SampleRef& tail : tails) {
    wait_without_gil(
        [&](timing::HostNanoseconds until) { return timing::device::wait(*tail.get(), until); });
  }
  inside_own_range(OwnRange::kDrain, &drain);
}

void flush() {
  inside_own_range(OwnRange::kFlush, &wait_and_drain);
  close_lost_captures();
  drain_kept();
  emit_pending_warnings();
}

void flush_and_call_listeners() {
  flush();
  call_listeners_after_read();
}

py::object summary_dict(const Summary& summary, bool bins) {
  if (summary.count == 0) return py::none();
  py::dict result("count"_a = summary.count, "left_out"_a = summary.count - summary.measured,
                  "total_margin_ms"_a = summary.margin, "total_ms"_a = summary.total,
                  "mean_ms"_a = summary.mean, "min_ms"_a = summary.min, "p50_ms"_a = summary.p50,
                  "p90_ms"_a = summary.p90, "p99_ms"_a = summary.p99, "max_ms"_a = summary.max,
                  "first_ms"_a = summary.first);
  if (bins) result["bins"] = summary.bins;
  return result;
}

py::dict row_dict(const timing::Row& row, bool bins) {
  return py::dict("path"_a = from_utf8(row.path->text), "names"_a = path_names(*row.path),
                  "clock"_a = timing::clock_name(row.clock), "dropped"_a = row.dropped,
                  "pending"_a = row.pending, "failed"_a = row.failed, "skipped"_a = row.skipped,
                  "gpu"_a = row.has_device ? summary_dict(row.device, bins) : py::none(),
                  "host"_a = summary_dict(row.host, bins), "work"_a = work_dict(row.work),
                  "memory"_a = memory_dict(row.memory));
}

py::dict snapshot(bool wait, bool bins) {
  if (wait) {
    flush();
  } else {
    drain();
  }
  call_listeners_after_read();
  budget::hand_over_left_out();
  py::list rows;
  std::uint64_t dropped = 0;
  for (const timing::Row& row :
       without_gil([&] { return timing::device::rows_with_pending(bins); })) {
    dropped += row.dropped;
    rows.append(row_dict(row, bins));
  }
  return py::dict("rows"_a = rows, "dropped"_a = dropped);
}

py::typing::List<py::typing::Tuple<py::typing::Tuple<py::str, py::ellipsis>, py::int_, py::int_>>
open_scope_list() {
  py::list result;
  for (const OpenScope& each : open_scopes()) {
    result.append(py::make_tuple(path_names(*each.path), each.since, each.thread));
  }
  return result;
}

}  // namespace

void bind_timing_statistics(py::module_& module) {
  module.def("stats_snapshot", &snapshot, py::arg("wait"), py::arg("bins") = false,
             "All rows as plain data. wait: first wait for what is pending now. bins: each summary "
             "also has its bins.");
  module.def("flush", &flush_and_call_listeners, "Wait for what is pending now and count it.");
  module.def("_open_scopes", &open_scope_list,
             "The named scopes that are open on any thread: (names, host_begin_ns, thread_id).");
  module.def(
      "reset_stats",
      [] {
        timing::statistics::reset();
        budget::begin_anew();
      },
      "Forget all samples, also those entered before now and not finished.");
}

}  // namespace gpuprof::bindings
