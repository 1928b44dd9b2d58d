/// @file
/// Traces: what the program did, when, as a file that Perfetto opens.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>

#include "gpuprof/version.hpp"

GPUPROF_BEGIN_NAMESPACE

/// Named values beside an event or a run.
class TraceArgs {
 public:
  TraceArgs() = default;
  TraceArgs& add(std::string_view key, std::string_view text);
  TraceArgs& add(std::string_view key, const char* text) {
    return add(key, std::string_view(text));
  }
  /// A number that is not finite becomes the text "nan", "inf" or "-inf".
  TraceArgs& add(std::string_view key, double value);
  /// Any integer, or a bool.
  template <typename Number, typename = std::enable_if_t<std::is_integral_v<Number>>>
  TraceArgs& add(std::string_view key, Number value) {
    if constexpr (std::is_same_v<Number, bool>) {
      return add_json(key, value ? "true" : "false");
    } else {
      return add_json(key, std::to_string(value));
    }
  }

 private:
  friend class TraceWriter;
  TraceArgs& add_json(std::string_view key, std::string_view json);
  std::string json_;  // members of an object, without its braces
};

/// How a trace is written.
struct TraceOptions {
  /// Whether to take what scopes and annotations of the whole process do, besides the events that
  /// the methods of the writer are given.
  bool collect = true;
  /// How many MiB of events may wait to be written; what finds no room is dropped and counted.
  std::size_t buffer_mib = 32;
  /// To keep in the file, of the run as a whole; a few hundred bytes.
  TraceArgs args;
};

/// What became of a trace.
struct TraceState {
  bool open = false;
  std::string error;           ///< why nothing is written any more; empty if all is well
  std::uint64_t events = 0;    ///< written, or about to be
  std::uint64_t dropped = 0;   ///< found no room
  std::uint64_t unplaced = 0;  ///< GPU spans that could not be put on the host's clock
  std::uint64_t bytes = 0;     ///< of the file
};

/// A trace file that is being written, from its construction to close().
///
/// It is Chrome trace JSON, strict, as Perfetto and chrome://tracing read it. While it is open it
/// is `PATH.part`, which loads at any moment; closing makes it `PATH`. Scopes are on the track of
/// their host thread and, at the time at which the GPU ran them, on a track of their stream. One
/// thread of gpuprof's own writes all open traces.
///
/// Times are nanoseconds of the host's monotonic clock, see now_ns(). All methods may be called
/// from any thread; those that write events never throw for the file's sake: a failure to write
/// becomes one warning and ends the trace. In a forked child the parent's writer does nothing.
class TraceWriter {
 public:
  /// @throws std::invalid_argument for an empty path or one that ends in ".gz", which needs the
  ///     Python package; std::system_error if the file cannot be made, something other than a file
  ///     is there, or no thread can be started.
  explicit TraceWriter(std::string path, const TraceOptions& options = {});
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;
  /// Closes it.
  ~TraceWriter();

  /// The host's monotonic clock, now.
  static std::int64_t now_ns() noexcept;

  /// A slice that ends now. @throws std::invalid_argument for a duration below 0 or not finite.
  /// @param tid its track: a thread's number of the kernel, or any number below 2^28; 0 is the
  ///     calling thread.
  void push(std::string_view name, std::string_view category, double duration_ms, unsigned tid = 0);
  /// A slice from `begin_ns` to `end_ns`. @throws std::invalid_argument for an end before it.
  void complete(std::string_view name, std::int64_t begin_ns, std::int64_t end_ns,
                std::string_view category = {}, unsigned tid = 0, const TraceArgs& args = {});
  /// A moment; `at_ns` 0 is now.
  void instant(std::string_view name, std::string_view category = {}, unsigned tid = 0,
               std::int64_t at_ns = 0, const TraceArgs& args = {});
  /// The value of a counter from now or `at_ns` on. One that is not finite leaves a gap.
  void counter(std::string_view name, double value, std::int64_t at_ns = 0);
  /// The ends of an arrow between slices: one start, any steps, one end, each inside a slice,
  /// joined by an id below 2^40. @throws std::invalid_argument for a larger id.
  void flow_start(std::uint64_t id, std::string_view name = "flow", unsigned tid = 0);
  void flow_step(std::uint64_t id, std::string_view name = "flow", unsigned tid = 0);
  void flow_end(std::uint64_t id, std::string_view name = "flow", unsigned tid = 0);

  /// Waits until all that was given so far is in `PATH.part`.
  void flush();
  /// Waits for the GPU time of the scopes that were left, writes the rest and makes `PATH`, which
  /// replaces a file there. Idempotent; a second thread waits for the first. Failures are in
  /// state(), and a warning. No other call may come after the destructor has begun.
  void close() noexcept;

  /// Where the trace is once it is closed. Another open trace's path gets the process's number
  /// before its suffix.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] TraceState state() const;

 private:
  void note(std::uint8_t kind, std::string_view name, std::string_view category, std::int64_t begin,
            std::int64_t end, unsigned tid, const std::string& args, std::uint64_t id = 0);
  void flow(std::uint8_t kind, std::uint64_t id, std::string_view name, unsigned tid);
  [[nodiscard]] bool is_open() const noexcept;
  void complete_file();

  std::string path_;
  std::string part_;
  int descriptor_ = -1;
  std::uint32_t number_ = 0;
  std::uint32_t generation_ = 0;  // of the process that opened it
  bool collects_ = true;
  std::atomic<bool> open_{true};
  mutable std::mutex closing_;  // held over no code of yours; guards what follows
  TraceState last_;             // once it is closed
};

/// Gives the calling thread's track its name.
void name_thread(std::string_view name);

GPUPROF_END_NAMESPACE
