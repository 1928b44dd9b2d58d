// Where the events of one open trace go: to its file, or into a ring in memory.
//
// For the writer thread only, except the functions marked const for all threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "trace/event.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::trace {

struct SinkCounts {
  std::uint64_t events = 0;       // taken: written, or about to be
  std::uint64_t unplaced = 0;     // GPU spans whose time could not be placed
  HostNanoseconds gpu_error = 0;  // the largest possible error of a placed one
};

struct State : SinkCounts {
  bool open = false;
  bool failed = false;
  std::string error;                 // why it failed
  std::uint64_t dropped = 0;         // by all threads since it was opened
  std::uint64_t bytes = 0;           // of its file, or of its ring
  HostNanoseconds writer_cpu = 0;    // CPU time of the writer thread since it started
  bool is_ring = false;              // what follows is of a ring alone
  std::uint64_t held = 0;            // events
  HostNanoseconds reaches_back = 0;  // how long ago the oldest of them arrived
  std::uint64_t dumps = 0;           // files written

  void fail(const std::string& why) noexcept {
    failed = true;
    try {
      error = why;
    } catch (...) {  // out of memory: failed without words
    }
  }
};

struct SinkOptions {
  bool collects = true;     // takes all events, not only those with its number as target
  bool from_start = false;  // also takes events that ended before it was opened
  std::size_t buffer_bytes = kDefaultBufferBytes;  // the largest of all open traces counts
};

// What the writer thread tells a sink in each of its rounds.
struct Round {
  HostNanoseconds now = 0;
  std::uint64_t dropped = 0;           // since the sink was opened
  HostNanoseconds unplaced_since = 0;  // the host's end of the first GPU span that waits for its
                                       // place; INT64_MAX: none does
};

class EventSink {
 public:
  EventSink(std::uint32_t number, const SinkOptions& options) noexcept
      : number_(number),
        options_(options),
        opened_(options.from_start ? INT64_MIN : driver::host_now()) {}
  EventSink(const EventSink&) = delete;
  EventSink& operator=(const EventSink&) = delete;
  virtual ~EventSink() = default;

  // Const for all threads.
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
  [[nodiscard]] bool collects() const noexcept { return options_.collects; }
  [[nodiscard]] std::size_t buffer_bytes() const noexcept { return options_.buffer_bytes; }

  // Whether the event belongs to this trace: by its target, or because it ended while it was open.
  [[nodiscard]] bool wants(const Event& event) const noexcept {
    if (finished_) return false;
    if (event.target != 0) return event.target == number_;
    return options_.collects && event.end >= opened_ && event.end <= closed_;
  }

  // Adds an event of any kind but kGpu. `noted_by` is the thread it came from.
  virtual void add(const Event& event, std::uint32_t noted_by) = 0;
  // Adds a kGpu event that began at `begin` +- `error`.
  virtual void add_gpu(Event event, std::uint32_t noted_by, HostNanoseconds begin,
                       HostNanoseconds error) = 0;
  void count_unplaced() noexcept { ++counts_.unplaced; }

  // Events that end after `time` do not belong to this trace.
  void stop_at(HostNanoseconds time) noexcept { closed_ = time; }

  // Whether somebody waits for it: then the next round is to begin at once.
  [[nodiscard]] virtual bool wants_round() const noexcept { return false; }
  // Before the events of a round are taken. True if GPU times are to be read and placed in it.
  virtual bool begin_round(HostNanoseconds /*now*/) noexcept { return false; }
  // After it. True if the next round is to begin at once.
  virtual bool end_round(const Round& /*round*/) noexcept { return false; }
  virtual void flush() noexcept {}
  // Whether it writes what it takes in its last round.
  [[nodiscard]] virtual bool writes_at_end() const noexcept { return failure() == nullptr; }
  // Takes no more events, and completes what it writes.
  virtual void finish(const Round& round) noexcept = 0;
  // Syncs its file to disk. Not on the writer thread, which others wait for; only after its last
  // use.
  virtual void sync() noexcept {}
  // Lets go of the file in a forked child.
  virtual void abandon() noexcept {}
  // Ends for lack of memory.
  virtual void give_up(const char* why) noexcept = 0;

  [[nodiscard]] const SinkCounts& counts() const noexcept { return counts_; }
  // Why it has failed; null if it has not.
  [[nodiscard]] virtual const std::string* failure() const noexcept { return nullptr; }
  // Sets what it alone knows of the state.
  virtual void describe(State& state) const noexcept = 0;

 protected:
  bool finished_ = false;
  SinkCounts counts_;

 private:
  const std::uint32_t number_;
  const SinkOptions options_;
  const HostNanoseconds opened_;
  HostNanoseconds closed_ = INT64_MAX;
};

}  // namespace gpuprof::trace
