// Several traces made one: on one clock, no two processes with one pid, no two flows with one id.
//
// Each file is read twice: MergePlan learns from all of them what there is, Merge then rewrites
// them one after the other. Times are moved by the difference of the files' clock bases
// (nanoseconds of the wall clock at time 0); the smallest becomes the output's. A pid that an
// earlier file has used becomes rank * 2^22 + pid. Ids become ones that are the file's own. All
// else stays as it was, and the order of the events too. Memory is bounded by the numbers of
// processes and the largest event. Malformed input is a ReadError. Not safe to share between
// threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/edits.hpp"
#include "trace/event_reader.hpp"

namespace gpuprof::trace::reading {

// What one file says of itself.
struct MergeInput {
  struct Process {
    std::string pid;  // JSON text
    bool named = false;
    bool labelled = false;
  };
  std::string name;                  // the file's, for people
  std::optional<std::int64_t> base;  // nanoseconds since the epoch
  std::optional<std::int64_t> rank;
  std::vector<Process> processes;  // in the order of their first event
  std::vector<Header> headers;
  End end;
};

// Reads a file for what MergeInput holds.
class MergeScan {
 public:
  static constexpr std::size_t kMaxProcesses = 100'000;

  explicit MergeScan(std::string name) { input_.name = std::move(name); }
  void feed(std::string_view piece);
  MergeInput finish();

 private:
  void take(const TraceEvent& event);
  void take_own_metadata(std::string_view args);

  EventReader reader_;
  TraceEvent event_;
  MergeInput input_;
  std::unordered_map<std::string, std::size_t> processes_;
};

class Merge {
 public:
  // With `align`, every input must have a base.
  Merge(std::vector<MergeInput> inputs, bool align);

  // All append to `out`; the files in the order of the inputs, each with begin, feed, end.
  void begin(std::string& out);
  void begin_file();
  void feed(std::string_view piece, std::string& out);
  void end_file();
  void finish(std::string& out);

  [[nodiscard]] std::uint64_t events() const noexcept { return events_; }
  // The old pids and the new ones that differ, by input.
  using PidMap = std::unordered_map<std::string, std::string>;
  [[nodiscard]] const std::vector<PidMap>& pids() const noexcept { return pids_; }
  [[nodiscard]] const std::vector<std::int64_t>& shifts() const noexcept { return shifts_; }
  [[nodiscard]] std::optional<std::int64_t> base() const noexcept { return base_; }

 private:
  static std::string other_pid(const std::string& old, std::int64_t steps);
  void plan_pids();
  std::string description(std::size_t number) const;
  void write(const TraceEvent& event, std::string& out);
  void move_time(const TraceEvent& event);
  void rename_process(const TraceEvent& event);
  void change_ids(const TraceEvent& event);
  std::optional<std::string> new_id(std::string_view raw, bool is_string) const;
  std::string label_of(std::size_t number, const std::string& pid) const;
  void separate(std::string& out);

  std::vector<MergeInput> inputs_;
  std::vector<PidMap> pids_;
  std::vector<std::int64_t> shifts_;
  std::optional<std::int64_t> base_;
  EventReader reader_;
  TraceEvent event_;
  Edits edits_;
  std::size_t current_ = 0;
  std::uint64_t events_ = 0;
  bool any_ = false;
};

}  // namespace gpuprof::trace::reading
