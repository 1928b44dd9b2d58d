// Reading traces: the tools of src/trace, fed with bytes. Results are plain data.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>

#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "bindings/parts.hpp"
#include "trace/merge.hpp"
#include "trace/read_error.hpp"
#include "trace/repair.hpp"
#include "trace/summary.hpp"
#include "trace/validate.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
namespace reading = trace::reading;
using namespace py::literals;

namespace {

// The text may be cut inside a character.
py::str text(std::string_view utf8) {
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(utf8.data(), static_cast<Py_ssize_t>(utf8.size()), "replace"));
}

// Runs what reads a trace without the lock; what is wrong with the trace becomes a TraceError.
template <typename Work>
void read_without_gil(Work&& work) {
  try {
    without_gil(work);
  } catch (const reading::ReadError& error) {
    const py::object type = py::module_::import("gpuprof.errors").attr("TraceError");
    PyErr_SetString(type.ptr(), error.what());
    throw py::error_already_set();
  }
}

// The caller keeps the bytes alive.
std::string_view bytes_of(py::handle piece) {
  if (PyBytes_Check(piece.ptr()) == 0) {
    throw py::type_error(std::string("a piece of a trace is ") + Py_TYPE(piece.ptr())->tp_name +
                         "; expected bytes");
  }
  return {PyBytes_AS_STRING(piece.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(piece.ptr()))};
}

template <typename Tool>
void feed(Tool& tool, py::handle piece) {
  const std::string_view bytes = bytes_of(piece);
  read_without_gil([&tool, bytes] { tool.feed(bytes); });
}

template <typename Tool>
void finish(Tool& tool) {
  read_without_gil([&tool] { tool.finish(); });
}

// For tools that answer what to write.
template <typename Work>
py::bytes output_of(Work&& work) {
  std::string out;
  read_without_gil([&] { work(out); });
  return {out};
}

const char* name_of(reading::Form form) {
  return form == reading::Form::kArray ? "array" : "object";
}

py::dict end_of(const reading::End& end) {
  return py::dict("form"_a = name_of(end.form), "complete"_a = end.complete,
                  "events"_a = end.events, "bytes"_a = end.bytes,
                  "inside_event"_a = end.inside_event);
}

// A name without quotes; any other JSON as it is.
py::str plain(const std::string& json) {
  const bool quotes = json.size() >= 2 && json.front() == '"' && json.back() == '"';
  return text(quotes ? reading::unquoted(json) : json);
}

py::dict track_of(const reading::Track& track) {
  return py::dict("pid"_a = plain(track.pid), "tid"_a = plain(track.tid),
                  "process"_a = text(track.process), "thread"_a = text(track.thread));
}

const char* name_of(reading::RangeKind kind) {
  switch (kind) {
    case reading::RangeKind::kGpu:
      return "gpu";
    case reading::RangeKind::kHost:
      return "host";
    case reading::RangeKind::kAsync:
      break;
  }
  return "async";
}

std::unique_ptr<reading::Summary> make_summary(const std::string& by) {
  using reading::GroupBy;
  return std::make_unique<reading::Summary>(by == "tid"   ? GroupBy::kTrack
                                            : by == "cat" ? GroupBy::kCategory
                                                          : GroupBy::kName);
}

py::list rows_of(const reading::Summary& summary, std::size_t most) {
  py::list rows;
  for (const reading::SummaryRow& row : summary.rows(most)) {
    py::dict entry("kind"_a = name_of(row.kind), "key"_a = text(row.key), "other"_a = row.other,
                   "count"_a = row.group.count, "total_ns"_a = row.group.total,
                   "min_ns"_a = row.group.shortest, "max_ns"_a = row.group.longest);
    entry["self_ns"] = row.kind == reading::RangeKind::kAsync
                           ? py::object(py::none())
                           : py::int_(row.group.total - row.group.inside);
    entry["track"] = row.track == 0 ? py::object(py::none()) : track_of(summary.track(row.track));
    rows.append(std::move(entry));
  }
  return rows;
}

py::list gpu_tracks_of(reading::Summary& summary, std::size_t most_gaps) {
  py::list tracks;
  for (const reading::TrackRow& row : summary.gpu_tracks(most_gaps)) {
    py::dict entry = track_of(summary.track(row.track));
    entry["ranges"] = row.ranges;
    entry["begin_ns"] = row.extent.begin;
    entry["end_ns"] = row.extent.end;
    entry["busy_ns"] = row.busy;
    entry["gap_count"] = row.gaps;
    py::list gaps;
    for (const reading::Interval& gap : row.largest_gaps) {
      gaps.append(py::make_tuple(gap.begin, gap.end));
    }
    entry["largest_gaps"] = std::move(gaps);
    tracks.append(std::move(entry));
  }
  return tracks;
}

py::dict summary_result(reading::Summary& summary, std::size_t most, std::size_t most_gaps) {
  py::dict phases;
  for (const auto& [phase, count] : summary.phases()) phases[text({&phase, 1})] = count;
  py::dict groups;
  for (const auto kind :
       {reading::RangeKind::kGpu, reading::RangeKind::kHost, reading::RangeKind::kAsync}) {
    groups[name_of(kind)] = summary.groups(kind);
  }
  return py::dict("end"_a = end_of(summary.end()), "rows"_a = rows_of(summary, most),
                  "gpu_tracks"_a = gpu_tracks_of(summary, most_gaps), "phases"_a = phases,
                  "groups"_a = groups, "tracks"_a = summary.track_count(),
                  "begin_ns"_a = summary.extent().begin, "end_ns"_a = summary.extent().end,
                  "dropped"_a = summary.dropped(), "unplaced"_a = summary.unplaced(),
                  "unmatched"_a = summary.unmatched(), "crossings"_a = summary.crossings(),
                  "self_is_approximate"_a = summary.self_is_approximate(),
                  "gpu_ranges_left_out"_a = summary.gpu_tracks_left_out());
}

py::dict validation_result(const reading::Validation& validation) {
  py::list findings;
  for (const reading::Finding& finding : validation.findings()) {
    findings.append(
        py::dict("severity"_a = finding.fault ? "fault" : "note", "code"_a = finding.code,
                 "event"_a = finding.event == reading::kNoEvent ? py::object(py::none())
                                                                : py::int_(finding.event),
                 "offset"_a = finding.offset, "message"_a = finding.message));
  }
  return py::dict("end"_a = end_of(validation.end()), "findings"_a = findings,
                  "faults"_a = validation.faults(), "notes"_a = validation.notes(),
                  "unchecked"_a = validation.unchecked());
}

py::dict repair_result(const reading::Repair& repair) {
  py::list lost;
  for (const std::string& key : repair.lost_members()) lost.append(text(key));
  return py::dict(
      "end"_a = end_of(repair.end()), "events"_a = repair.events(),
      "left_out"_a = repair.left_out(), "mended"_a = repair.mended(), "lost_members"_a = lost,
      "stopped"_a = repair.stopped().empty() ? py::object(py::none()) : py::str(repair.stopped()));
}

py::dict input_of(const reading::MergeInput& input) {
  return py::dict("end"_a = end_of(input.end), "base"_a = input.base, "rank"_a = input.rank,
                  "processes"_a = input.processes.size());
}

py::dict merge_result(const reading::Merge& merge) {
  py::list renamed;
  for (const auto& pids : merge.pids()) {
    py::dict entry;
    for (const auto& [from, to] : pids) entry[plain(from)] = plain(to);
    renamed.append(std::move(entry));
  }
  return py::dict("events"_a = merge.events(), "base"_a = merge.base(),
                  "shifts_ns"_a = merge.shifts(), "renamed_pids"_a = renamed);
}

std::unique_ptr<reading::Merge> make_merge(const py::list& inputs, bool align) {
  std::vector<reading::MergeInput> list;
  for (const py::handle input : inputs) list.push_back(input.cast<reading::MergeInput>());
  return std::make_unique<reading::Merge>(std::move(list), align);
}

void bind_merge(py::module_& module) {
  using reading::Merge;
  using reading::MergeInput;
  using reading::MergeScan;
  py::class_<MergeInput>(module, "_MergeInput").def("result", &input_of);
  py::class_<MergeScan>(module, "_MergeScan")
      .def(py::init<std::string>(), "name"_a)
      .def("feed", &feed<MergeScan>, "piece"_a)
      .def("finish", [](MergeScan& scan) {
        std::unique_ptr<MergeInput> input;
        read_without_gil([&] { input = std::make_unique<MergeInput>(scan.finish()); });
        return input;
      });
  py::class_<Merge>(module, "_Merge")
      .def(py::init(&make_merge), "inputs"_a, "align"_a)
      .def("begin", [](Merge& merge) { return output_of([&](auto& out) { merge.begin(out); }); })
      .def("begin_file", &Merge::begin_file)
      .def(
          "feed",
          [](Merge& merge, py::handle piece) {
            const std::string_view bytes = bytes_of(piece);
            return output_of([&](auto& out) { merge.feed(bytes, out); });
          },
          "piece"_a)
      .def("end_file", [](Merge& merge) { read_without_gil([&merge] { merge.end_file(); }); })
      .def("finish", [](Merge& merge) { return output_of([&](auto& out) { merge.finish(out); }); })
      .def("result", &merge_result);
}

}  // namespace

void bind_trace_tools(py::module_& module) {
  using reading::Repair;
  using reading::Summary;
  using reading::Validation;
  py::class_<Summary>(module, "_TraceSummary")
      .def(py::init(&make_summary), "by"_a)
      .def("feed", &feed<Summary>, "piece"_a)
      .def("finish", &finish<Summary>)
      .def("result", &summary_result, "most"_a, "most_gaps"_a);
  py::class_<Validation>(module, "_TraceValidation")
      .def(py::init<>())
      .def("feed", &feed<Validation>, "piece"_a)
      .def("finish", &finish<Validation>)
      .def("result", &validation_result);
  py::class_<Repair>(module, "_TraceRepair")
      .def(py::init<>())
      .def(
          "feed",
          [](Repair& repair, py::handle piece) {
            const std::string_view bytes = bytes_of(piece);
            return output_of([&](auto& out) { repair.feed(bytes, out); });
          },
          "piece"_a)
      .def("finish",
           [](Repair& repair) { return output_of([&](auto& out) { repair.finish(out); }); })
      .def("result", &repair_result);
  bind_merge(module);
}

}  // namespace gpuprof::bindings
