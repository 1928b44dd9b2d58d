// One trace: what it takes, on which tracks, and the file it goes to.
//
// Only the writer thread uses it, but for what is said to be fixed. It formats events at once and
// writes them when enough have come together, or when told to. Times are nanoseconds of the host's
// monotonic clock; in the file they count from base_time().
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
#include "trace/text.hpp"

namespace gpuprof::trace {

// The zero of all traces of this process on the monotonic clock: a second before it was loaded, so
// that no event is negative.
HostNanoseconds base_time() noexcept;

// CLOCK_REALTIME less the monotonic clock, now.
std::int64_t unix_offset() noexcept;

struct OutputOptions {
  int descriptor = -1;      // an empty file; lent until close() has returned
  std::string where;        // its name for messages
  bool collects = true;     // takes what the program does, not only what is meant for it alone
  bool from_start = false;  // also what ended before it was opened and was noted after
  std::string process;      // the process's name
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::string args;  // of the run as a whole: members of a JSON object; left out if too long
  std::size_t buffer_bytes = kDefaultBufferBytes;  // the largest of the open traces counts
};

struct OutputCounts {
  std::uint64_t events = 0;       // that were taken
  std::uint64_t unplaced = 0;     // GPU spans that no clock could place
  HostNanoseconds gpu_error = 0;  // the largest error that a placed one may have
};

class Output {
 public:
  Output(std::uint32_t number, OutputOptions options);

  // Fixed.
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
  [[nodiscard]] bool collects() const noexcept { return options_.collects; }
  [[nodiscard]] std::size_t buffer_bytes() const noexcept { return options_.buffer_bytes; }

  // Whether the event belongs here: it is meant for this one, or ended while this was open.
  [[nodiscard]] bool wants(const Event& event) const noexcept {
    if (finished_) return false;
    if (event.target != 0) return event.target == number_;
    return options_.collects && event.end >= opened_ && event.end <= closed_;
  }

  // An event of any kind but kGpu, noted by a thread.
  void add(const Event& event, std::uint32_t noted_by);
  // A kGpu event that began at `begin`, give or take `error`; it is not drawn before its launch.
  void add_gpu(Event event, std::uint32_t noted_by, HostNanoseconds begin, HostNanoseconds error);
  void count_unplaced() noexcept { ++counts_.unplaced; }

  // Nothing that ends after `time` is taken any more.
  void stop_at(HostNanoseconds time) noexcept { closed_ = time; }
  void flush() noexcept;
  // Completes the file, unless it failed.
  void finish(std::uint64_t dropped);
  // Puts it on the disk. Not on the writer thread, which others wait for; after its last use there.
  void sync() noexcept { file_.sync(); }
  void abandon() noexcept { file_.abandon(); }
  // Ends the trace for a reason that is not the file's, unless it is complete.
  void give_up(const char* why) noexcept {
    if (!finished_) file_.fail(why);
  }

  [[nodiscard]] const OutputCounts& counts() const noexcept { return counts_; }
  [[nodiscard]] const PartFile& file() const noexcept { return file_; }

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
  // How much longer a GPU slice is drawn to surround what ran in it: placement is that exact, and
  // within a long one the GPU's clock drifts (9 us a second were measured).
  static constexpr HostNanoseconds kStretch = 5'000;
  static constexpr HostNanoseconds kStretchPart = 20'000;  // 50 ppm

  [[nodiscard]] Position on(std::uint32_t tid) const noexcept { return {pid_, tid}; }
  Lane& lane_of(std::uint32_t tid);
  // Where the next line will begin, counted from the first one's beginning.
  [[nodiscard]] std::uint64_t next_line() const noexcept { return flushed_ + text_.size(); }
  void move_before(std::uint64_t line, std::size_t from) noexcept;
  [[nodiscard]] std::string_view head_of(const Event& event, std::uint32_t tid);
  void note_crossing(std::uint32_t tid, HostNanoseconds begin);
  void name_thread_track(std::uint32_t tid);
  std::uint32_t gpu_tid(GpuTrack& track, const TrackKey& key, HostNanoseconds begin,
                        HostNanoseconds& end, std::uint16_t depth, std::uint64_t& line);
  GpuTrack& gpu_track(const TrackKey& key);
  void name_gpu_track(std::uint32_t tid, const TrackKey& key, const GpuTrack& track);
  void name_track(std::uint32_t tid, const std::string& name, std::uint32_t order);
  [[nodiscard]] std::string clock_args() const;

  const std::uint32_t number_;
  const OutputOptions options_;
  const HostNanoseconds opened_;
  const std::int64_t unix_offset_;
  HostNanoseconds closed_ = INT64_MAX;
  bool finished_ = false;
  const std::uint32_t main_tid_;
  const std::string pid_;
  Text text_;                  // formatted, not written yet
  std::uint64_t flushed_ = 0;  // what was before it
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
  std::set<std::pair<std::uint32_t, HostNanoseconds>> crossing_;  // host slices beside their track
  OutputCounts counts_;
};

}  // namespace gpuprof::trace
