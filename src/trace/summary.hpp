// What a trace holds: the ranges that took the most time, and when each GPU track was busy.
//
// Fed with the file in pieces, then asked once finish() was called. Memory is bounded whatever the
// file: past kMaxGroups names, kMaxOpen open ranges and the bounds of SliceForest and Coverage,
// what comes is summed up under one name, left out and counted, or approximated, and the result
// says which. Times are nanoseconds. Self time is a range's own less that of the ranges directly
// inside it on its track; asynchronous ranges have none. Malformed input is a ReadError. Not safe
// to share between threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/coverage.hpp"
#include "trace/event_reader.hpp"
#include "trace/event_values.hpp"
#include "trace/slice_forest.hpp"
#include "trace/text_table.hpp"
#include "trace/tracks.hpp"

namespace gpuprof::trace::reading {

enum class GroupBy : std::uint8_t { kName, kCategory, kTrack };
enum class RangeKind : std::uint8_t { kGpu, kHost, kAsync };
inline constexpr std::size_t kRangeKinds = 3;

struct RangeGroup {
  std::uint64_t count = 0;
  std::int64_t total = 0;
  std::int64_t shortest = 0;
  std::int64_t longest = 0;
  std::int64_t inside = 0;  // of the total, in ranges directly inside
};

struct SummaryRow {
  RangeKind kind = RangeKind::kHost;
  std::string key;        // a name or a category; empty for ranges without
  std::size_t track = 0;  // where they are grouped by track
  bool other = false;     // all that had no room
  RangeGroup group;
};

struct TrackRow {
  std::size_t track = 0;
  std::uint64_t ranges = 0;
  std::int64_t busy = 0;
  Interval extent;
  std::size_t gaps = 0;
  std::vector<Interval> largest_gaps;
};

class Summary final : private SliceVisitor {
 public:
  static constexpr std::size_t kMaxGroups = 100'000;
  static constexpr std::size_t kMaxOpen = 500'000;
  static constexpr std::size_t kMaxGpuTracks = 256;

  explicit Summary(GroupBy by, std::size_t most_slices = SliceForest::kMaxSlices);

  void feed(std::string_view piece);
  void finish();

  [[nodiscard]] const End& end() const noexcept { return end_; }
  // The longest totals first; at most so many of each kind.
  [[nodiscard]] std::vector<SummaryRow> rows(std::size_t most) const;
  // GPU tracks in the order of their first event.
  [[nodiscard]] std::vector<TrackRow> gpu_tracks(std::size_t most_gaps);
  [[nodiscard]] Track track(std::size_t number) const { return tracks_.track(number); }
  [[nodiscard]] std::size_t track_count() const noexcept { return tracks_.size() - 1; }
  [[nodiscard]] const std::map<char, std::uint64_t>& phases() const noexcept { return phases_; }
  [[nodiscard]] std::int64_t dropped() const noexcept { return tracks_.dropped(); }
  [[nodiscard]] std::int64_t unplaced() const noexcept { return tracks_.unplaced(); }
  // Of all ranges.
  [[nodiscard]] Interval extent() const noexcept { return extent_; }
  [[nodiscard]] std::uint64_t groups(RangeKind kind) const noexcept;
  // Begins without an end, ends without a begin, and begins that had no room.
  [[nodiscard]] std::uint64_t unmatched() const noexcept { return unmatched_; }
  // Overlaps of ranges that do not nest, on one track.
  [[nodiscard]] std::uint64_t crossings() const noexcept { return crossings_; }
  [[nodiscard]] bool self_is_approximate() const noexcept { return forest_.approximate(); }
  [[nodiscard]] std::size_t gpu_tracks_left_out() const noexcept { return gpu_tracks_left_out_; }

 private:
  struct Open {
    std::int64_t begin = 0;
    std::uint32_t group = 0;
    bool gpu = false;
  };
  struct GpuTrack {
    std::uint64_t ranges = 0;
    Coverage work;         // without annotations
    Coverage annotations;  // counts where there is nothing else
    bool has_work = false;
  };

  void inside(const Slice& outer, std::int64_t ns) override;
  void crossing(const Slice& first, const Slice& second) override;
  void outside(const Slice& /*slice*/) override {}

  void take(const TraceEvent& event);
  void take_duration(const TraceEvent& event, char phase);
  void take_async(const TraceEvent& event, bool begins);
  void add(RangeKind kind, std::uint32_t group, std::int64_t begin, std::int64_t end);
  void add_on_track(std::size_t track, bool gpu, std::uint32_t group, Span span, bool annotation);
  std::uint32_t group_of(const TraceEvent& event, RangeKind kind, std::size_t track);

  GroupBy by_;
  EventReader reader_;
  Tracks tracks_;
  SliceForest forest_;
  std::vector<TextTable> texts_;  // by kind
  std::array<std::vector<RangeGroup>, kRangeKinds> groups_;
  std::unordered_map<std::size_t, std::vector<Open>> open_;        // by track
  std::unordered_map<std::string, std::vector<Open>> open_async_;  // by name and id
  std::vector<std::pair<std::size_t, GpuTrack>> gpu_tracks_;
  std::unordered_map<std::size_t, std::size_t> gpu_track_numbers_;
  std::map<char, std::uint64_t> phases_;
  TraceEvent event_;
  End end_;
  Interval extent_;
  std::size_t open_count_ = 0;
  std::uint64_t unmatched_ = 0;
  std::size_t gpu_tracks_left_out_ = 0;
  std::uint64_t crossings_ = 0;
  bool any_range_ = false;
};

}  // namespace gpuprof::trace::reading
