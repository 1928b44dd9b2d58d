// What is wrong with a trace, and at which event.
//
// Fed with the file in pieces; reads on over what it can. A fault is what breaks a consumer or
// makes it show something else than was written; a note is what is legal and less than it could be.
// The first kMaxFindings are kept, all are counted. Memory is bounded: past kMaxPairs unfinished
// flows or open ranges, or the bounds of SliceForest, new ones are not checked, and the result says
// so. Only what is no trace at all is a ReadError. Not safe to share between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "trace/event_reader.hpp"
#include "trace/event_values.hpp"
#include "trace/slice_forest.hpp"
#include "trace/tracks.hpp"

namespace gpuprof::trace::reading {

struct Finding {
  bool fault = true;
  std::string code;         // one word for the kind
  std::uint64_t event = 0;  // kNoEvent: of the file
  std::uint64_t offset = 0;
  std::string message;
};

class Validation final : private SliceVisitor {
 public:
  static constexpr std::size_t kMaxFindings = 1000;
  static constexpr std::size_t kMaxPairs = 500'000;

  explicit Validation(std::size_t most_slices = SliceForest::kMaxSlices)
      : reader_(true), forest_(*this, most_slices) {}

  void feed(std::string_view piece);
  void finish();

  // In the order of the file.
  [[nodiscard]] const std::vector<Finding>& findings() const noexcept { return findings_; }
  // By code, for faults and for notes.
  [[nodiscard]] const std::map<std::string, std::uint64_t>& faults() const noexcept {
    return faults_;
  }
  [[nodiscard]] const std::map<std::string, std::uint64_t>& notes() const noexcept {
    return notes_;
  }
  [[nodiscard]] const End& end() const noexcept { return end_; }
  // What was not looked at for lack of room, in words; empty if nothing.
  [[nodiscard]] const std::vector<std::string>& unchecked() const noexcept { return unchecked_; }

 private:
  struct Place {
    std::uint64_t event = 0;
    std::uint64_t offset = 0;
  };
  struct Open {
    Place place;
    std::string name;
    std::int64_t time = 0;
  };
  struct Flow {
    Place place;
    bool started = false;
    bool ended = false;
  };

  void inside(const Slice& /*outer*/, std::int64_t /*ns*/) override {}
  void crossing(const Slice& first, const Slice& second) override;
  void outside(const Slice& slice) override;

  void check(const TraceEvent& event);
  void check_defects(const TraceEvent& event);
  void check_phase(const TraceEvent& event, char phase);
  void check_identity(const TraceEvent& event, char phase);
  void check_number(const TraceEvent& event, Field field);
  void check_slice(const TraceEvent& event);
  void check_duration(const TraceEvent& event, char phase, std::int64_t time);
  void check_async(const TraceEvent& event, bool begins, std::int64_t time);
  void check_flow(const TraceEvent& event, char phase, std::int64_t time);
  void forget_whole_flows();
  void check_counter(const TraceEvent& event);
  void check_inner(const TraceEvent& event);
  std::optional<std::int64_t> check_time(const TraceEvent& event);
  void check_names();
  void check_end();

  void fault(const TraceEvent& event, std::uint64_t at, const char* code, std::string message);
  void note(const TraceEvent& event, std::uint64_t at, const char* code, std::string message);
  void add(bool is_fault, const char* code, Place place, std::string message);
  void add_defect(const Defect& defect, std::uint64_t event);

  EventReader reader_;
  Tracks tracks_;
  SliceForest forest_;
  TraceEvent event_;
  std::unordered_map<std::size_t, std::vector<Open>> open_;  // by track
  std::unordered_map<std::string, std::vector<Open>> open_async_;
  std::unordered_map<std::string, Flow> flows_;
  std::unordered_set<std::string> scratch_;
  std::vector<Finding> findings_;
  std::map<std::string, std::uint64_t> faults_;
  std::map<std::string, std::uint64_t> notes_;
  std::vector<std::string> unchecked_;
  std::size_t open_count_ = 0;
  std::uint64_t without_room_ = 0;
  End end_;
  bool stopped_ = false;
  bool forgot_flows_ = false;
};

}  // namespace gpuprof::trace::reading
