#include "trace/output.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include "trace/names.hpp"

namespace gpuprof::trace {
namespace {

constexpr HostNanoseconds kSecond = 1'000'000'000;
constexpr std::size_t kMostArgs = 256;     // that fit into the file's head
constexpr std::uint32_t kGpuOrder = 1000;  // GPU tracks stand below the threads

const HostNanoseconds base = driver::monotonic_now() - kSecond;

std::string json(const std::string& text) {
  std::string out;
  append_json(out, text);
  return out;
}

std::string member(const char* name, std::int64_t value) {
  return std::string("\"") + name + "\":" + std::to_string(value);
}

// By GpuWork. Never destroyed: events may point at them.
const std::array<const Label*, 3> gpu_categories{
    new Label{"\"gpu\"", {}}, new Label{"\"gpu_graph\"", {}}, new Label{"\"gpu_in_graph\"", {}}};

std::string shown_thread(std::uint32_t tid) {
  const std::string name = thread_name(tid);
  return name.empty() ? "thread " + std::to_string(tid) : name;
}

// A line without its comma.
std::string bare(const Text& line) {
  const std::string_view text = line.view();
  return std::string(text.substr(0, text.size() - 2));
}

}  // namespace

HostNanoseconds base_time() noexcept { return base; }

std::int64_t unix_offset() noexcept {
  std::timespec now{};
  const HostNanoseconds before = driver::monotonic_now();
  std::timespec_get(&now, TIME_UTC);
  const HostNanoseconds after = driver::monotonic_now();
  const std::int64_t unix_time = static_cast<std::int64_t>(now.tv_sec) * kSecond + now.tv_nsec;
  return unix_time - (before + (after - before) / 2);
}

Output::Output(std::uint32_t number, OutputOptions options)
    : EventSink(number, options.sink),
      run_(std::move(options.run)),
      is_cut_(options.is_cut),
      unix_offset_(trace::unix_offset()),
      main_tid_(static_cast<std::uint32_t>(::getpid())),
      pid_(std::to_string(main_tid_)),
      file_(options.descriptor, std::move(options.where)) {
  Text first;
  append_metadata(first, on(main_tid_), "gpuprof", clock_args());
  file_.begin(bare(first));
  append_metadata(text_, on(main_tid_), "process_name", "\"name\":" + json(run_.process));
  append_metadata(text_, on(main_tid_), "process_sort_index", member("sort_index", run_.rank));
  flush();
}

std::string Output::clock_args() const {
  std::string args = member("baseTimeNanoseconds", base + unix_offset_) + "," +
                     member("rank", run_.rank) + "," + member("world_size", run_.world_size);
  if (!run_.args.empty() && run_.args.size() <= kMostArgs) {
    args += ",\"args\":{" + run_.args + "}";
  }
  return args;
}

void Output::add(const Event& event, std::uint32_t noted_by) {
  ++counts_.events;
  const std::uint32_t tid = event.tid != 0 ? event.tid : noted_by;
  Lane& lane = lane_of(tid);  // also where it is not needed: the track has to be named
  const Position at = on(tid);
  const HostNanoseconds begin = std::max(event.begin, base) - base;
  HostNanoseconds end = std::max(event.end, base) - base;
  const std::size_t from = text_.size();
  std::uint64_t line = next_line();
  switch (event.kind) {
    case Kind::kSlice:
      if (is_cut_) first_slice_.try_emplace(tid, event.end);
      if (lane.add(begin, end, event.depth, line)) {
        append_slice(text_, head_of(event, tid), event, begin, end - begin);
        move_before(line, from);
        break;
      }
      // An arrow can begin in a slice of a thread's track only.
      if (crossing_.size() >= kMostCrossing) crossing_.clear();
      crossing_.emplace(tid, event.begin);
      [[fallthrough]];
    case Kind::kAsync:
      append_async(text_, at, event, begin, end, next_async_++);
      break;
    case Kind::kInstant:
    case Kind::kCounter:
      append_moment(text_, at, event, end);
      break;
    case Kind::kFlowStart:
    case Kind::kFlowStep:
    case Kind::kFlowEnd: {
      const char phase =
          event.kind == Kind::kFlowStart ? 's' : (event.kind == Kind::kFlowStep ? 't' : 'f');
      append_flow(text_, at, phase, event.name->json,
                  event.category != nullptr ? event.category->json : "\"flow\"", end, event.id);
      break;
    }
    case Kind::kGpu:
      break;
  }
  if (text_.size() >= kFlushBytes) flush();
}

// Only within the text that is not in the file yet. Earlier moves make remembered positions of
// other tracks wrong; a line whose target is no line's begin stays where it is.
void Output::move_before(std::uint64_t line, std::size_t from) noexcept {
  if (line < flushed_) return;
  const auto to = static_cast<std::size_t>(line - flushed_);
  if (to >= from || (to != 0 && text_.view()[to - 1] != '\n')) return;
  text_.move_end(from, to);
}

// A cache of slice heads. Only for interned names: the address of another may be reused.
std::string_view Output::head_of(const Event& event, std::uint32_t tid) {
  const auto mix = (reinterpret_cast<std::uintptr_t>(event.name) >> 5U) ^
                   (reinterpret_cast<std::uintptr_t>(event.category) >> 7U) ^ tid;
  Head& head = heads_[mix % heads_.size()];
  const bool interned = event.extra == nullptr || !event.extra->own;
  if (interned && head.name == event.name && head.category == event.category && head.tid == tid) {
    return head.text;
  }
  head = {interned ? event.name : nullptr, event.category, tid, slice_head(on(tid), event)};
  return head.text;
}

void Output::add_gpu(Event event, std::uint32_t noted_by, HostNanoseconds begin,
                     HostNanoseconds error) {
  ++counts_.events;
  counts_.gpu_error = std::max(counts_.gpu_error, error);
  const GpuSpan& span = event.extra->gpu;
  event.category = gpu_categories[static_cast<std::size_t>(span.work)];
  const std::uint32_t host_tid = event.tid != 0 ? event.tid : noted_by;
  const TrackKey key{span.device, span.stream, host_tid};
  const HostNanoseconds measured = std::llround(span.duration_ns);
  // A span that would begin before its launch is cut at the front: moved as a whole, it would
  // overlap the next one.
  const HostNanoseconds early = std::max<HostNanoseconds>(span.launched - begin, 0);
  begin += early;
  HostNanoseconds end = begin + std::max(measured - early, measured / 2);
  const std::size_t from = text_.size();
  std::uint64_t line = next_line();
  const std::uint32_t tid = gpu_tid(key, begin, end, event.depth, line);
  const std::string_view head = head_of(event, tid);
  Extra stretched;
  if (end != begin + measured) {  // the measured time is an argument then
    Text exact;
    append_microseconds(exact, measured);
    stretched.args = event.extra->args;
    if (!stretched.args.empty()) stretched.args += ',';
    stretched.args.append("\"gpu_us\":").append(exact.view());
    event.extra = &stretched;
  }
  const auto first = first_slice_.find(host_tid);
  const bool has_launch = !is_cut_ || (first != first_slice_.end() && event.end >= first->second);
  const bool arrow = span.work != GpuWork::kInsideReplay && has_launch &&
                     crossing_.count({host_tid, span.launched}) == 0;
  if (arrow) {
    lane_of(host_tid);
    append_flow(text_, on(host_tid), 's', "\"launch\"", "\"launch\"", span.launched - base,
                next_flow_);
  }
  append_slice(text_, head, event, begin - base, end - begin);
  if (arrow) {
    append_flow(text_, on(tid), 'f', "\"launch\"", "\"launch\"", begin - base, next_flow_++);
  }
  move_before(line, from);
  if (text_.size() >= kFlushBytes) flush();
}

Lane& Output::lane_of(std::uint32_t tid) {
  if (tid == last_tid_) return *last_lane_;
  const auto [found, is_new] = lanes_.try_emplace(tid);
  if (is_new) name_thread_track(tid, shown_thread(tid));
  last_tid_ = tid;
  last_lane_ = &found->second;
  return found->second;
}

void Output::name_thread_track(std::uint32_t tid, const std::string& name) {
  name_track(tid, name, tid == main_tid_ ? 0 : 1);
}

void Output::name_track(std::uint32_t tid, const std::string& name, std::uint32_t order) {
  append_metadata(text_, on(tid), "thread_name", "\"name\":" + json(name));
  append_metadata(text_, on(tid), "thread_sort_index", member("sort_index", order));
}

std::uint32_t Output::gpu_tid(const TrackKey& key, HostNanoseconds begin, HostNanoseconds& end,
                              std::uint16_t depth, std::uint64_t& line) {
  const auto [found, is_new] = gpu_tracks_.try_emplace(key);
  GpuTrack& track = found->second;
  if (is_new) {
    auto& of_device = streams_[std::get<0>(key)];
    track.number = of_device.try_emplace(std::get<1>(key), of_device.size()).first->second;
  }
  for (GpuLane& entry : track.lanes) {
    const HostNanoseconds slack = kStretch + (end - begin) / kStretchPart;
    if (entry.lane.add(begin, end, depth, line, slack)) return entry.tid;
  }
  track.lanes.push_back({next_gpu_tid_++, {}});
  GpuLane& added = track.lanes.back();
  added.lane.add(begin, end, depth, line);
  name_gpu_track(added.tid, key, track);
  return added.tid;
}

void Output::name_gpu_track(std::uint32_t tid, const TrackKey& key, const GpuTrack& track) {
  const auto& [device, stream, host_tid] = key;
  std::string name = "GPU " + std::to_string(device);
  if (const std::string model = device_name(device); !model.empty()) name += " " + model;
  const std::string known = stream_name(device, stream);
  if (!known.empty()) {
    name += ", " + known;
  } else if (stream == stream_key(0, 0) || stream == stream_key(1, 0)) {
    name += ", default stream";
  } else if (stream == stream_key(2, 0)) {
    name += ", per-thread default stream";
  } else {
    name += ", stream " + std::to_string(track.number);
  }
  name += " (" + shown_thread(host_tid) + ")";
  if (track.lanes.size() > 1) name += " #" + std::to_string(track.lanes.size());
  name_track(tid, name, kGpuOrder + tid - kFirstGpuTid);
}

void Output::flush() noexcept {
  if (text_.size() == 0) return;
  file_.write(text_.view());
  flushed_ += text_.size();
  text_.clear();
}

void Output::finish(const Round& round) noexcept {
  try {
    complete(round.dropped, {});
  } catch (const std::exception& error) {  // out of memory
    file_.fail(error.what());
  }
}

void Output::complete(std::uint64_t dropped, const std::string& members) {
  finished_ = true;
  for (const auto& [tid, lane] : lanes_) {
    const std::string name = thread_name(tid);
    if (!name.empty()) name_thread_track(tid, name);
  }
  flush();
  Text last;
  append_metadata(last, on(main_tid_), "gpuprof",
                  clock_args() + "," + member("events", static_cast<std::int64_t>(counts_.events)) +
                      "," + member("dropped", static_cast<std::int64_t>(dropped)) + "," +
                      member("unplaced", static_cast<std::int64_t>(counts_.unplaced)) + "," +
                      member("gpuErrorNanoseconds", counts_.gpu_error) + "," +
                      member("unixOffsetChangeNanoseconds", trace::unix_offset() - unix_offset_) +
                      (members.empty() ? "" : "," + members));
  file_.finish(bare(last), R"("displayTimeUnit":"ns",)" +
                               member("baseTimeNanoseconds", base + unix_offset_) +
                               R"(,"distributedInfo":{)" + member("rank", run_.rank) + "," +
                               member("world_size", run_.world_size) + "}");
}

}  // namespace gpuprof::trace
