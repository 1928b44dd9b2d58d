#include "trace/summary.hpp"

#include <algorithm>
#include <utility>

namespace gpuprof::trace::reading {
namespace {

constexpr std::size_t index_of(RangeKind kind) noexcept { return static_cast<std::size_t>(kind); }

constexpr std::uint64_t tag_of(RangeKind kind, std::uint32_t group) noexcept {
  return static_cast<std::uint64_t>(kind) << 32U | group;
}

// What the begin and the end of an asynchronous range have in common.
std::string async_key(const TraceEvent& event) {
  std::string key;
  const auto add = [&key](std::string_view text) {
    key += text.substr(0, TextTable::kMaxTextBytes);
    key += '\0';
  };
  add(event.raw(Field::kCat));
  add(event.raw(Field::kId));
  add(event.raw(Field::kName));
  const std::string_view id2 = event.raw(Field::kId2);
  add(id2);
  if (id2.find("local") != std::string_view::npos) add(event.raw(Field::kPid));
  return key;
}

}  // namespace

Summary::Summary(GroupBy by, std::size_t most_slices)
    : by_(by), forest_(*this, most_slices), texts_(kRangeKinds, TextTable(kMaxGroups)) {}

void Summary::feed(std::string_view piece) {
  reader_.feed(piece);
  while (reader_.next(event_)) take(event_);
}

void Summary::finish() {
  end_ = reader_.finish();
  forest_.finish();
  unmatched_ += open_count_;
}

void Summary::take(const TraceEvent& event) {
  const char phase = require_phase(event);
  ++phases_[phase];
  require_labels(event);
  switch (phase) {
    case 'M':
      tracks_.metadata(event);
      break;
    case 'X': {
      const Span span = require_span(event);
      const bool gpu = Tracks::is_gpu(event);
      const std::size_t track = tracks_.number(event);
      const std::uint32_t group = group_of(event, gpu ? RangeKind::kGpu : RangeKind::kHost, track);
      const bool annotation = gpu && event.string(Field::kCat) == kGpuAnnotation;
      add_on_track(track, gpu, group, span, annotation);
      break;
    }
    case 'B':
    case 'E':
      take_duration(event, phase);
      break;
    case 'b':
    case 'S':
      take_async(event, true);
      break;
    case 'e':
    case 'F':
      take_async(event, false);
      break;
    default:
      if (event.value(Field::kTs).kind != ValueKind::kAbsent) require_time(event, Field::kTs);
      break;
  }
}

void Summary::take_duration(const TraceEvent& event, char phase) {
  const std::int64_t time = require_time(event, Field::kTs).value;
  const std::size_t track = tracks_.number(event);
  std::vector<Open>& open = open_[track];
  if (phase == 'B') {
    if (open_count_ == kMaxOpen) {
      ++unmatched_;
      return;
    }
    const bool gpu = Tracks::is_gpu(event);
    open.push_back({time, group_of(event, gpu ? RangeKind::kGpu : RangeKind::kHost, track), gpu});
    ++open_count_;
    return;
  }
  if (open.empty() || time < open.back().begin) {
    ++unmatched_;
    return;
  }
  const Open begun = open.back();
  open.pop_back();
  --open_count_;
  add_on_track(track, begun.gpu, begun.group, {begun.begin, time, true}, false);
}

void Summary::take_async(const TraceEvent& event, bool begins) {
  const std::int64_t time = require_time(event, Field::kTs).value;
  const std::string key = async_key(event);
  if (begins) {
    if (open_count_ == kMaxOpen) {
      ++unmatched_;
      return;
    }
    const std::size_t track = tracks_.number(event);
    open_async_[key].push_back({time, group_of(event, RangeKind::kAsync, track), false});
    ++open_count_;
    return;
  }
  const auto found = open_async_.find(key);
  if (found == open_async_.end() || time < found->second.back().begin) {
    ++unmatched_;
    return;
  }
  const Open begun = found->second.back();
  found->second.pop_back();
  --open_count_;
  if (found->second.empty()) open_async_.erase(found);
  add(RangeKind::kAsync, begun.group, begun.begin, time);
}

std::uint32_t Summary::group_of(const TraceEvent& event, RangeKind kind, std::size_t track) {
  if (by_ == GroupBy::kTrack) return static_cast<std::uint32_t>(track);
  const Field field = by_ == GroupBy::kName ? Field::kName : Field::kCat;
  TextTable& texts = texts_[index_of(kind)];
  const Value& value = event.value(field);
  if (value.kind != ValueKind::kString) return texts.number({});
  if (value.escaped) return texts.number(event.string(field));
  return texts.number(event.text.substr(value.begin + 1, value.end - value.begin - 2));
}

void Summary::add(RangeKind kind, std::uint32_t group, std::int64_t begin, std::int64_t end) {
  auto& groups = groups_[index_of(kind)];
  if (group >= groups.size()) groups.resize(group + 1);
  RangeGroup& sum = groups[group];
  const std::int64_t duration = end - begin;
  sum.shortest = sum.count == 0 ? duration : std::min(sum.shortest, duration);
  sum.longest = std::max(sum.longest, duration);
  // Sums beyond 292 years stay there: no trace is that long, and overflow must not be.
  if (__builtin_add_overflow(sum.total, duration, &sum.total)) sum.total = INT64_MAX;
  ++sum.count;
  extent_.begin = any_range_ ? std::min(extent_.begin, begin) : begin;
  extent_.end = any_range_ ? std::max(extent_.end, end) : end;
  any_range_ = true;
}

void Summary::add_on_track(std::size_t track, bool gpu, std::uint32_t group, Span span,
                           bool annotation) {
  const RangeKind kind = gpu ? RangeKind::kGpu : RangeKind::kHost;
  add(kind, group, span.begin, span.end);
  if (track != Tracks::kOther) forest_.add(track, {span.begin, span.end, tag_of(kind, group)});
  if (!gpu) return;
  const auto found = gpu_track_numbers_.find(track);
  if (found == gpu_track_numbers_.end() && gpu_tracks_.size() == kMaxGpuTracks) {
    ++gpu_tracks_left_out_;
    return;
  }
  const std::size_t number = found == gpu_track_numbers_.end() ? gpu_tracks_.size() : found->second;
  if (found == gpu_track_numbers_.end()) {
    gpu_track_numbers_.emplace(track, number);
    gpu_tracks_.emplace_back(track, GpuTrack{});
  }
  GpuTrack& gpu_track = gpu_tracks_[number].second;
  ++gpu_track.ranges;
  gpu_track.has_work = gpu_track.has_work || !annotation;
  (annotation ? gpu_track.annotations : gpu_track.work).add({span.begin, span.end});
}

void Summary::inside(const Slice& outer, std::int64_t ns) {
  auto& groups = groups_[outer.tag >> 32U];
  RangeGroup& sum = groups[static_cast<std::uint32_t>(outer.tag)];
  if (__builtin_add_overflow(sum.inside, ns, &sum.inside)) sum.inside = INT64_MAX;
}

void Summary::crossing(const Slice& first, const Slice& second) {
  constexpr std::int64_t kRounding = 2;  // of times that were finer than nanoseconds
  if (first.end - second.begin > kRounding) ++crossings_;
}

std::vector<SummaryRow> Summary::rows(std::size_t most) const {
  std::vector<SummaryRow> result;
  for (std::size_t kind = 0; kind < kRangeKinds; ++kind) {
    const auto& groups = groups_[kind];
    std::vector<std::uint32_t> order;
    for (std::uint32_t group = 0; group < groups.size(); ++group) {
      if (groups[group].count != 0) order.push_back(group);
    }
    const auto longer = [&groups](std::uint32_t a, std::uint32_t b) {
      return groups[a].total != groups[b].total ? groups[a].total > groups[b].total : a < b;
    };
    const std::size_t count = std::min(most, order.size());
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count),
                      order.end(), longer);
    order.resize(count);
    for (const std::uint32_t group : order) {
      SummaryRow row;
      row.kind = static_cast<RangeKind>(kind);
      row.group = groups[group];
      row.other = group == 0;  // kOther of both texts and tracks
      if (by_ == GroupBy::kTrack) {
        row.track = group;
      } else {
        row.key = texts_[kind].text(group);
      }
      result.push_back(std::move(row));
    }
  }
  return result;
}

std::vector<TrackRow> Summary::gpu_tracks(std::size_t most_gaps) {
  std::vector<TrackRow> result;
  for (auto& [number, gpu] : gpu_tracks_) {
    Coverage& coverage = gpu.has_work ? gpu.work : gpu.annotations;
    result.push_back({number, gpu.ranges, coverage.busy(), coverage.extent(), coverage.gap_count(),
                      coverage.largest_gaps(most_gaps)});
  }
  return result;
}

std::uint64_t Summary::groups(RangeKind kind) const noexcept {
  const auto& groups = groups_[index_of(kind)];
  return static_cast<std::uint64_t>(std::count_if(
      groups.begin(), groups.end(), [](const RangeGroup& group) { return group.count != 0; }));
}

}  // namespace gpuprof::trace::reading
