// One trace in a file: its tracks and its lines.
//
// For the writer thread only, except the functions marked const for all threads. Events are
// formatted at once, and written when there are enough or on flush(). Times are nanoseconds of the
// host's monotonic clock; in the file they count from base_time().
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "trace/event.hpp"
#include "trace/format.hpp"
#include "trace/lanes.hpp"
#include "trace/part_file.hpp"
#include "trace/recorder.hpp"
#include "trace/sink.hpp"

namespace gpuprof::trace {

// The zero of all traces of this process on the monotonic clock: a second before the module was
// loaded, so that no time is negative.
HostNanoseconds base_time() noexcept;

// CLOCK_REALTIME minus the monotonic clock, now.
std::int64_t unix_offset() noexcept;

// What a file says of its process.
struct RunInfo {
  std::string process;  // the process's name
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::string args;  // of the whole run: members of a JSON object; left out if too long
};

struct OutputOptions {
  int descriptor = -1;  // an empty file, borrowed until close() returns
  std::string where;    // its name for messages
  SinkOptions sink;
  RunInfo run;
  bool is_cut = false;  // earlier events are missing: an arrow needs the slice that it begins in
};

class Output final : public EventSink {
 public:
  Output(std::uint32_t number, OutputOptions options);

  void add(const Event& event, std::uint32_t noted_by) override;
  // Never shown before its launch.
  void add_gpu(Event event, std::uint32_t noted_by, HostNanoseconds begin,
               HostNanoseconds error) override;
  void flush() noexcept override;
  void finish(const Round& round) noexcept override;
  // Completes the file, unless it has failed. `members` are added to those of its last event.
  void complete(std::uint64_t dropped, const std::string& members);
  void sync() noexcept override { file_.sync(); }
  void abandon() noexcept override { file_.abandon(); }
  void give_up(const char* why) noexcept override {
    if (!finished_) file_.fail(why);
  }
  [[nodiscard]] const std::string* failure() const noexcept override {
    return file_.failed() ? &file_.error() : nullptr;
  }
  void describe(State& state) const noexcept override { state.bytes = file_.bytes(); }

 private:
  using TrackKey = std::tuple<int, std::uint64_t, std::uint32_t>;  // device, stream, host thread
  struct Head {
    const Label* name = nullptr;
    const Label* category = nullptr;
    std::uint32_t tid = 0;
    std::string text;
  };
  struct GpuLane {
    std::uint32_t tid;
    Lane lane;
  };
  struct GpuTrack {
    std::size_t number;  // of the stream, in order of appearance on its device
    std::vector<GpuLane> lanes;
  };
  static constexpr std::size_t kFlushBytes = std::size_t{256} * 1024;
  static constexpr std::uint32_t kFirstGpuTid = 1U << 28U;              // tids of users are below
  static constexpr std::uint64_t kFirstFlow = std::uint64_t{1} << 40U;  // those of users are below
  static constexpr std::size_t kMostCrossing = 100'000;
  // How far a GPU slice is extended to contain what ran in it: the error of placement, and the
  // drift of the GPU's clock within a long one (9 us a second were measured).
  static constexpr HostNanoseconds kStretch = 5'000;
  static constexpr HostNanoseconds kStretchPart = 20'000;  // 50 ppm

  [[nodiscard]] Position on(std::uint32_t tid) const noexcept { return {pid_, tid}; }
  Lane& lane_of(std::uint32_t tid);
  // The position of the next line, counted from the first one.
  [[nodiscard]] std::uint64_t next_line() const noexcept { return flushed_ + text_.size(); }
  void move_before(std::uint64_t line, std::size_t from) noexcept;
  [[nodiscard]] std::string_view head_of(const Event& event, std::uint32_t tid);
  void name_thread_track(std::uint32_t tid, const std::string& name);
  std::uint32_t gpu_tid(const TrackKey& key, HostNanoseconds begin, HostNanoseconds& end,
                        std::uint16_t depth, std::uint64_t& line);
  void name_gpu_track(std::uint32_t tid, const TrackKey& key, const GpuTrack& track);
  void name_track(std::uint32_t tid, const std::string& name, std::uint32_t order);
  [[nodiscard]] std::string clock_args() const;

  const RunInfo run_;
  const bool is_cut_;
  const std::int64_t unix_offset_;
  const std::uint32_t main_tid_;
  const std::string pid_;
  Text text_;                  // formatted, not written yet
  std::uint64_t flushed_ = 0;  // bytes before it
  PartFile file_;
  std::unordered_map<std::uint32_t, Lane> lanes_;  // by host thread
  std::array<Head, 64> heads_;
  std::uint32_t last_tid_ = 0;
  Lane* last_lane_ = nullptr;
  std::map<TrackKey, GpuTrack> gpu_tracks_;
  std::map<int, std::map<std::uint64_t, std::size_t>> streams_;  // of each device, numbered
  std::uint32_t next_gpu_tid_ = kFirstGpuTid;
  std::uint64_t next_async_ = 1;
  std::uint64_t next_flow_ = kFirstFlow;
  std::set<std::pair<std::uint32_t, HostNanoseconds>>
      crossing_;  // host slices that are not on their track
  std::unordered_map<std::uint32_t, HostNanoseconds> first_slice_;  // its end; where it is cut
};

}  // namespace gpuprof::trace
