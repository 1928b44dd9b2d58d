// A trace that is kept in memory: the newest events, written to a file when somebody asks.
//
// Who asks: a call, which waits for its dump; a signal; a limit that a scope has passed. The writer
// thread then waits a moment for the GPU spans in flight, takes a snapshot of the ring, and writes
// it a few milliseconds at a time between its rounds, so that no event is lost meanwhile. Dumps are
// made one after another; a request of a signal or a limit that comes in the middle of one makes
// one more. A dump that fails leaves no file and is one warning.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trace/dump_file.hpp"
#include "trace/output.hpp"
#include "trace/ring.hpp"
#include "trace/sink.hpp"

namespace gpuprof::trace {

struct RecorderOptions {
  static constexpr HostNanoseconds kForEver = HostNanoseconds{1} << 61U;

  SinkOptions sink;
  RunInfo run;
  std::size_t keep_bytes = 0;  // 0 keeps nothing: events are taken and forgotten
  HostNanoseconds keep = kForEver;
  DumpName name;
  std::uint64_t max_dumps = 0;
  std::vector<int> signals;  // that ask for a dump
};

class FlightRecorder final : public EventSink {
 public:
  // Throws std::bad_alloc, std::system_error for a signal that cannot be handled.
  FlightRecorder(std::uint32_t number, RecorderOptions options);
  ~FlightRecorder() override;

  // Any thread, without any lock.

  // Waits until the dump is there, and returns its path: empty if there is none, which is a warning
  // if the recorder is open.
  std::string dump(std::string reason);
  // Has a dump made because of a limit. One after another they are as far apart as the ring reaches
  // back: what comes earlier makes its dump then, or at the end.
  void dump_for_limit(const std::string& reason) noexcept;

  // The writer thread.
  [[nodiscard]] bool wants_round() const noexcept override { return has_calls_.load() && !job_; }
  void add(const Event& event, std::uint32_t noted_by) override;
  void add_gpu(Event event, std::uint32_t noted_by, HostNanoseconds begin,
               HostNanoseconds error) override;
  bool begin_round(HostNanoseconds now) noexcept override;
  bool end_round(const Round& round) noexcept override;
  [[nodiscard]] bool writes_at_end() const noexcept override { return job_ != nullptr; }
  void finish(const Round& round) noexcept override;
  void abandon() noexcept override;
  void give_up(const char* why) noexcept override;
  void describe(State& state) const noexcept override;

 private:
  struct Job;  // a dump that was asked for

  bool take_job(HostNanoseconds now);
  std::unique_ptr<Job> next_job(HostNanoseconds now);
  [[nodiscard]] bool is_settled(const Round& round) const noexcept;
  void begin_file();
  void write_some(const Round& round, HostNanoseconds until);
  void complete_file(const Round& round);
  void end_job(const std::string& error) noexcept;
  void fail_job(const char* why) noexcept;
  void warn_once(const std::string& what) noexcept;

  const RecorderOptions options_;
  Ring ring_;
  HostNanoseconds now_;
  std::vector<std::uint64_t> answered_;  // of each of the signals
  std::unique_ptr<Job> job_;             // the one that is being made
  std::atomic<int> descriptor_{-1};      // of the job's own file
  std::uint64_t last_number_ = 0;
  std::uint64_t dumps_ = 0;
  HostNanoseconds limits_rest_until_ = 0;
  bool has_warned_ = false;
  bool has_said_enough_ = false;

  std::mutex mutex_;  // guards what follows
  std::deque<std::unique_ptr<Job>> calls_;
  std::string limit_;  // why one is wanted; empty: none is
  bool closed_calls_ = false;
  std::atomic<bool> has_calls_{false};
  std::atomic<bool> has_limit_{false};
};

}  // namespace gpuprof::trace
