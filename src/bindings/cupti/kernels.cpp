// Kernel records, collected through CUPTI, as plain data: gpuprof._kernels makes tables of them.
//
// Columns go to Python as bytes, one for each field, so that a million records make no Python
// objects.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"
#include "bindings/python/objects.hpp"
#include "bindings/python/queueing.hpp"
#include "cupti/session.hpp"
#include "text/kernel_name.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using namespace py::literals;
using cupti::Activity;
using cupti::Collected;
using cupti::Collection;
using cupti::Launch;

namespace {

constexpr double kLongestWaitS = 86'400.0;

// A column: `value(row)` of every row, one after the other.
template <typename Row, typename Function>
py::bytes column_of(const std::deque<Row>& rows, Function&& value) {
  using Value = decltype(value(std::declval<const Row&>()));
  const auto bytes = static_cast<Py_ssize_t>(rows.size() * sizeof(Value));
  PyObject* made = checked(PyBytes_FromStringAndSize(nullptr, bytes));
  char* at = PyBytes_AS_STRING(made);
  for (const Row& row : rows) {
    const Value each = value(row);
    std::memcpy(at, &each, sizeof each);
    at += sizeof each;
  }
  return py::reinterpret_steal<py::bytes>(made);
}

py::dict activity_columns(const Collected& collected) {
  const auto& rows = collected.records->activities();
  const cupti::ClockMap& clock = collected.clock;
  py::dict columns;
  columns["kind"] =
      column_of(rows, [](const Activity& row) { return static_cast<std::uint8_t>(row.kind); });
  columns["name"] = column_of(rows, [](const Activity& row) { return row.name; });
  columns["begin_ns"] = column_of(rows, [&](const Activity& row) { return clock.at(row.begin); });
  columns["end_ns"] = column_of(rows, [&](const Activity& row) { return clock.at(row.end); });
  columns["device"] = column_of(rows, [](const Activity& row) { return row.device; });
  columns["stream"] = column_of(rows, [](const Activity& row) { return row.stream; });
  columns["correlation"] = column_of(rows, [](const Activity& row) { return row.correlation; });
  columns["graph_id"] = column_of(rows, [](const Activity& row) { return row.graph_id; });
  columns["node_id"] = column_of(rows, [](const Activity& row) { return row.node_id; });
  columns["nbytes"] = column_of(rows, [](const Activity& row) { return row.bytes; });
  return columns;
}

py::dict launch_columns(const Collected& collected) {
  const auto& rows = collected.records->launches();
  const cupti::ClockMap& clock = collected.clock;
  py::dict columns;
  columns["name"] = column_of(rows, [](const Launch& row) { return row.name; });
  columns["begin_ns"] = column_of(rows, [&](const Launch& row) { return clock.at(row.begin); });
  columns["end_ns"] = column_of(rows, [&](const Launch& row) { return clock.at(row.end); });
  columns["thread_id"] = column_of(rows, [](const Launch& row) { return row.thread_id; });
  columns["correlation"] = column_of(rows, [](const Launch& row) { return row.correlation; });
  return columns;
}

// Symbols that differ may be one name: that of a template whose arguments were left out.
py::dict totals_of(const Collected& collected, const py::list& names) {
  std::map<std::pair<int, std::string>, cupti::Total> sums;
  collected.records->for_each_total(
      [&](cupti::Kind kind, std::uint32_t name, const cupti::Total& total) {
        cupti::Total& sum = sums[{static_cast<int>(kind), utf8(py::object(names[name]).ptr())}];
        sum.count += total.count;
        sum.units += total.units;
      });
  py::dict totals;
  for (const auto& [key, sum] : sums) {
    totals[py::make_tuple(key.first, from_utf8(key.second))] =
        py::make_tuple(sum.count, collected.clock.duration(sum.units));
  }
  return totals;
}

py::dict library_facts(const cupti::Library& library) {
  return py::dict("version"_a = library.version, "path"_a = from_utf8(library.path));
}

py::dict load_cupti(const std::vector<std::string>& candidates) {
  return library_facts(*without_gil([&] { return &cupti::load(candidates); }));
}

void start_cupti(std::size_t max_records, const std::vector<std::string>& candidates) {
  queueing::calls_stay = true;
  or_undo([&] { without_gil([&] { cupti::start(max_records, candidates); }); },
          [] { queueing::calls_stay = cupti::is_collecting(); });
}

py::dict stop_cupti(double timeout_s) {
  without_gil(cupti::begin_stop);
  const double wait_s = timeout_s > 0.0 ? std::min(timeout_s, kLongestWaitS) : 0.0;
  const auto limit = timing::monotonic_now() + static_cast<std::int64_t>(wait_s * 1e9);
  const auto end = [] {
    Collected ended = without_gil(cupti::end_stop);
    queueing::calls_stay = false;
    return ended;
  };
  const auto wait = [&] {
    keep_polling_without_gil([&](timing::HostNanoseconds until) {
      return cupti::poll_stop(std::min(until, limit)) || timing::monotonic_now() >= limit;
    });
  };
  or_undo(wait, end);  // Ctrl-C
  const Collected collected = end();
  const Collection& records = *collected.records;
  py::dict result = library_facts(*cupti::loaded_or_null());
  result["activities"] = activity_columns(collected);
  result["launches"] = launch_columns(collected);
  py::list names;
  for (const std::string& name : records.names())
    names.append(from_utf8(graph_text::demangled(name)));
  result["names"] = names;
  result["totals"] = totals_of(collected, names);
  const cupti::Counts& counts = records.counts();
  result["count"] = counts.activities;
  result["dropped"] = counts.dropped;
  result["launches_dropped"] = counts.launches_dropped;
  result["cupti_dropped"] = counts.lost_by_cupti;
  result["incomplete"] = counts.untimed;
  result["unknown"] = counts.unknown;
  result["displaced"] = collected.displaced;
  result["clock_error_ns"] = collected.clock.error();
  result["problem"] =
      collected.problem.empty() ? py::object(py::none()) : py::object(from_utf8(collected.problem));
  return result;
}

}  // namespace

void bind_cupti(py::module_& module) {
  module.def("_cupti_load", &load_cupti, py::arg("candidates"));
  module.def("_cupti_start", &start_cupti, py::arg("max_records") = 1'000'000,
             py::arg("candidates") = std::vector<std::string>());
  module.def("_cupti_stop", &stop_cupti, py::arg("timeout_s") = 60.0);
  module.def("_cupti_is_collecting", &cupti::is_collecting);
}

}  // namespace gpuprof::bindings
