// The tracks of a trace: a process and a thread or stream each, with the names that metadata gives.
//
// Bounded: past kMaxTracks, new ones are all number kOther. Not safe to share between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/event_reader.hpp"

namespace gpuprof::trace::reading {

// From here on to the end of 32 bits, gpuprof numbers the lanes of GPU streams; Linux has no thread
// of such a number, and other writers' threads are beyond.
inline constexpr std::int64_t kFirstGpuTid = std::int64_t{1} << 28U;
inline constexpr std::int64_t kLastTid = (std::int64_t{1} << 32U) - 1;

struct Track {
  std::string pid;  // JSON text
  std::string tid;
  std::string process;  // names; may be empty
  std::string thread;
};

class Tracks {
 public:
  static constexpr std::size_t kOther = 0;
  static constexpr std::size_t kMaxTracks = 100'000;
  static constexpr std::size_t kMaxNameBytes = 256;

  Tracks();

  std::size_t number(const TraceEvent& event);

  // Takes the names out of a metadata event, and what gpuprof says of itself.
  void metadata(const TraceEvent& event);

  // Whether the event belongs to a GPU: by its category, or by its tid.
  static bool is_gpu(const TraceEvent& event);

  [[nodiscard]] std::size_t size() const noexcept { return tracks_.size(); }
  // With the names that are known now.
  [[nodiscard]] Track track(std::size_t number) const;
  // What gpuprof says that it had no room for, and what no clock could place.
  [[nodiscard]] std::int64_t dropped() const noexcept { return dropped_; }
  [[nodiscard]] std::int64_t unplaced() const noexcept { return unplaced_; }

 private:
  struct Key {
    std::string pid;
    std::string tid;
  };
  static std::string key_of(std::string_view pid, std::string_view tid);

  std::vector<Key> tracks_;
  std::unordered_map<std::string, std::size_t> numbers_;
  std::unordered_map<std::string, std::string> processes_;
  std::unordered_map<std::string, std::string> threads_;
  std::string last_pid_;
  std::string last_tid_;
  std::size_t last_ = kOther;
  std::int64_t dropped_ = 0;
  std::int64_t unplaced_ = 0;
};

// The categories by which torch.profiler and gpuprof mark what ran on a GPU.
bool is_gpu_category(std::string_view category) noexcept;
// Of them, the one that marks a span of the program and not work.
inline constexpr std::string_view kGpuAnnotation = "gpu_user_annotation";

}  // namespace gpuprof::trace::reading
