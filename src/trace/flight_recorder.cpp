#include "trace/flight_recorder.hpp"

#include <unistd.h>

#include <algorithm>
#include <future>
#include <utility>

#include "driver/error.hpp"
#include "trace/dump_signal.hpp"
#include "trace/writer.hpp"

namespace gpuprof::trace {
namespace {

constexpr HostNanoseconds kMillisecond = 1'000'000;
// How long a dump waits for the GPU spans in flight.
constexpr HostNanoseconds kInFlight = 500 * kMillisecond;
// A limit is passed before the scope's slice is noted.
constexpr HostNanoseconds kLimitSettles = 30 * kMillisecond;
// How long a dump may keep the writer from taking events.
constexpr HostNanoseconds kPiece = 2 * kMillisecond;
// How far apart the dumps of limits are where a ring has no age.
constexpr HostNanoseconds kRestWithoutAge = 30'000 * kMillisecond;

std::string as_seconds(HostNanoseconds time) {
  return json_number(static_cast<double>(time) / 1e9);
}

}  // namespace

struct FlightRecorder::Job {
  std::promise<std::string> answer;  // the path, for a call that waits for it
  int signal = 0;                    // that asked for it
  std::string reason;
  HostNanoseconds asked = driver::monotonic_now();
  HostNanoseconds not_before = 0;  // it is written
  std::shared_ptr<const void> in_flight;
  int rounds_since_over = 0;  // since the GPU has finished it
  Ring::Snapshot snapshot;
  HostNanoseconds from = 0;    // what ended earlier is too old
  HostNanoseconds since = 0;   // since when nothing is missing
  std::uint64_t left_out = 0;  // spans that the GPU had not finished
  std::unique_ptr<DumpFile> file;
  std::unique_ptr<Output> output;
};

FlightRecorder::FlightRecorder(std::uint32_t number, RecorderOptions options)
    : EventSink(number, options.sink),
      options_(std::move(options)),
      ring_(options_.keep_bytes, options_.keep, driver::monotonic_now()),
      now_(driver::monotonic_now()) {
  for (const int signal : options_.signals) {
    try {
      watch_signal(signal);
    } catch (...) {
      for (std::size_t i = 0; i < answered_.size(); ++i) unwatch_signal(options_.signals[i]);
      throw;
    }
    answered_.push_back(signals_seen(signal));
  }
}

FlightRecorder::~FlightRecorder() {
  if (finished_) return;
  for (const int signal : options_.signals) unwatch_signal(signal);  // its thread did not start
}

std::string FlightRecorder::dump(std::string reason) {
  auto job = std::make_unique<Job>();
  job->reason = std::move(reason);
  std::future<std::string> path = job->answer.get_future();
  {
    const std::lock_guard lock(mutex_);
    if (closed_calls_) return {};
    calls_.push_back(std::move(job));
    has_calls_.store(true);
  }
  wake_writer();
  return path.get();
}

void FlightRecorder::dump_for_limit(const std::string& reason) noexcept {
  if (has_limit_.load()) return;
  try {
    const std::lock_guard lock(mutex_);
    limit_ = reason;
    has_limit_.store(true);
  } catch (...) {  // out of memory: the next one
  }
}

void FlightRecorder::add(const Event& event, std::uint32_t noted_by) {
  ++counts_.events;
  ring_.add(event, noted_by, now_);
}

void FlightRecorder::add_gpu(Event event, std::uint32_t noted_by, HostNanoseconds begin,
                             HostNanoseconds error) {
  ++counts_.events;
  counts_.gpu_error = std::max(counts_.gpu_error, error);
  event.begin = begin;
  ring_.add(event, noted_by, now_);
}

bool FlightRecorder::take_job(HostNanoseconds now) {
  job_ = next_job(now);
  if (job_) job_->in_flight = gpu_clock.in_flight();
  return job_ != nullptr;
}

// Calls before signals before limits; null where nobody asks.
std::unique_ptr<FlightRecorder::Job> FlightRecorder::next_job(HostNanoseconds now) {
  if (has_calls_.load()) {
    const std::lock_guard lock(mutex_);
    auto job = std::move(calls_.front());
    calls_.pop_front();
    has_calls_.store(!calls_.empty());
    return job;
  }
  for (std::size_t i = 0; i < answered_.size(); ++i) {
    const std::uint64_t seen = signals_seen(options_.signals[i]);
    if (seen == answered_[i]) continue;
    auto job = std::make_unique<Job>();
    job->signal = options_.signals[i];
    job->reason = "signal " + std::to_string(job->signal);
    answered_[i] = seen;
    return job;
  }
  if (!has_limit_.load() || (now < limits_rest_until_ && !finished_)) return nullptr;
  auto job = std::make_unique<Job>();
  const std::lock_guard lock(mutex_);
  job->reason = std::move(limit_);
  has_limit_.store(false);
  job->not_before = now + kLimitSettles;
  const bool has_age = options_.keep != RecorderOptions::kForEver;
  limits_rest_until_ = now + (has_age ? options_.keep : kRestWithoutAge);
  return job;
}

bool FlightRecorder::begin_round(HostNanoseconds now) noexcept {
  now_ = now;
  if (finished_) return false;
  try {
    if (!job_ && !take_job(now)) return false;
    if (job_->output) return false;  // it is being written
    // Its spans are noted after they are over: one round more takes them.
    if (!job_->in_flight || job_->rounds_since_over > 0 ||
        gpu_clock.is_over(job_->in_flight.get())) {
      ++job_->rounds_since_over;
    }
    return job_->rounds_since_over > 0;
  } catch (const std::exception& error) {  // out of memory
    fail_job(error.what());
    return false;
  }
}

bool FlightRecorder::is_settled(const Round& round) const noexcept {
  if (round.now < job_->not_before) return false;
  if (round.now >= job_->asked + kInFlight || finished_) return true;
  const int rounds = job_->in_flight ? 2 : 1;
  return job_->rounds_since_over >= rounds && round.unplaced_since > job_->asked;
}

bool FlightRecorder::end_round(const Round& round) noexcept {
  try {
    if (job_ && !job_->output && is_settled(round)) begin_file();
    if (job_ && job_->output) write_some(round, driver::monotonic_now() + kPiece);
    if (!job_ || job_->output) ring_.trim(round.now);  // else before the snapshot
  } catch (const std::exception& error) {
    fail_job(error.what());
  }
  return (job_ && job_->output) || wants_round();
}

void FlightRecorder::begin_file() {
  if (dumps_ >= options_.max_dumps) {
    if (!std::exchange(has_said_enough_, true)) {
      driver::warn("gpuprof: the flight recorder has written its " + std::to_string(dumps_) +
                   " dumps and writes no more; max_dumps= allows more");
    }
    end_job({});
    return;
  }
  OutputOptions options;
  options.run = options_.run;
  options.is_cut = true;
  job_->file = std::make_unique<DumpFile>(options_.name, last_number_);
  descriptor_.store(job_->file->descriptor());
  options.descriptor = job_->file->descriptor();
  options.where = job_->file->part();
  job_->left_out = gpu_clock.count_in_flight();
  job_->snapshot = ring_.snapshot();
  job_->from = std::max(job_->asked - options_.keep, base_time());
  job_->since = std::max(job_->from, ring_.since());
  job_->output = std::make_unique<Output>(number(), std::move(options));
}

void FlightRecorder::write_some(const Round& round, HostNanoseconds until) {
  auto& chunks = job_->snapshot;
  do {
    if (chunks.empty()) {
      complete_file(round);
      return;
    }
    Ring::read(*chunks.front(), job_->from, *job_->output, counts_.gpu_error);
    chunks.pop_front();
  } while (driver::monotonic_now() < until || finished_);
}

void FlightRecorder::complete_file(const Round& round) {
  Output& output = *job_->output;
  Label name;
  append_json(name.json, "dump: " + job_->reason);
  Event mark;
  mark.kind = Kind::kInstant;
  mark.name = &name;
  mark.end = job_->asked;
  output.add(mark, static_cast<std::uint32_t>(::getpid()));
  std::string members = R"("dump":{"reason":)";
  append_json(members, job_->reason);
  members += R"(,"reachesBackSeconds":)" + as_seconds(job_->asked - job_->since);
  if (options_.keep != RecorderOptions::kForEver) {
    members += R"(,"keepLastSeconds":)" + as_seconds(options_.keep);
  }
  members += R"(,"keepBytes":)" + std::to_string(options_.keep_bytes);
  members += R"(,"unfinishedGpuSpans":)" + std::to_string(job_->left_out);
  members += R"(,"tooLarge":)" + std::to_string(ring_.too_large()) + "}";
  output.complete(round.dropped, members);
  output.sync();
  std::string error = output.failure() != nullptr ? *output.failure() : std::string();
  if (error.empty()) {
    descriptor_.store(-1);
    try {
      job_->file->complete(last_number_);
    } catch (const std::exception& failure) {
      error = "cannot make " + job_->file->path() + ": " + failure.what();
    }
  }
  end_job(error);
}

void FlightRecorder::end_job(const std::string& error) noexcept {
  const std::unique_ptr<Job> job = std::move(job_);
  descriptor_.store(-1);
  const bool is_written = job->output && error.empty();
  if (is_written) ++dumps_;
  if (!error.empty()) warn_once(error);
  if (job->signal != 0) answer_signal(job->signal);
  std::string path;
  try {
    if (is_written) path = job->file->path();
  } catch (...) {  // out of memory: no words
  }
  job->answer.set_value(std::move(path));
}

void FlightRecorder::fail_job(const char* why) noexcept {
  if (!job_) return;
  try {
    const std::string where =
        job_->file ? job_->file->path() : options_.name.before + "N" + options_.name.after;
    end_job("cannot write " + where + ": " + why);
  } catch (...) {  // out of memory
    if (job_) end_job("failed");
  }
}

void FlightRecorder::warn_once(const std::string& what) noexcept {
  if (std::exchange(has_warned_, true)) return;
  try {
    driver::warn("gpuprof: a dump of the flight recorder failed: " + what +
                 "; the recorder and the program go on, and later failures are not reported");
  } catch (...) {  // out of memory: no warning
  }
}

// Whatever was asked for is written first.
void FlightRecorder::finish(const Round& round) noexcept {
  finished_ = true;
  for (;;) {
    try {
      if (!job_ && !take_job(round.now)) {
        const std::lock_guard lock(mutex_);
        closed_calls_ = calls_.empty();
        if (closed_calls_) break;
      } else {
        if (!job_->output) begin_file();
        if (job_) write_some(round, INT64_MAX);
      }
    } catch (const std::exception& error) {
      fail_job(error.what());
    }
  }
  for (const int signal : options_.signals) unwatch_signal(signal);
  ring_.clear(round.now);
}

void FlightRecorder::abandon() noexcept {
  if (const int descriptor = descriptor_.load(); descriptor >= 0) ::close(descriptor);
}

// Letting go of the events makes room.
void FlightRecorder::give_up(const char* why) noexcept {
  fail_job(why);
  if (!finished_) ring_.clear(now_);
}

void FlightRecorder::describe(State& state) const noexcept {
  state.is_ring = true;
  state.bytes = ring_.bytes();
  state.held = ring_.events();
  state.reaches_back = now_ - std::max(ring_.since(), now_ - options_.keep);
  state.dumps = dumps_;
}

}  // namespace gpuprof::trace
