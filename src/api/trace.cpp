#include "gpuprof/trace.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "api/warnings.hpp"
#include "driver/process.hpp"
#include "gpuprof/stats.hpp"
#include "ranges/sample_events.hpp"
#include "trace/names.hpp"
#include "trace/recorder.hpp"
#include "trace/writer.hpp"

GPUPROF_BEGIN_NAMESPACE

using driver::HostNanoseconds;
using trace::Kind;

namespace {

constexpr std::uint64_t kEndOfFlows = std::uint64_t{1} << 40U;
constexpr int kMostTries = 1000;
constexpr double kLongestMs = 366.0 * 24 * 3600 * 1000;

// For the public header, which does not know the recorder's kinds.
constexpr std::uint8_t number_of(Kind kind) noexcept { return static_cast<std::uint8_t>(kind); }

// The file that is made replaces what is there, which must be no device, pipe or folder.
void refuse_other_than_file(const std::string& path) {
  struct stat there{};
  if (::stat(path.c_str(), &there) != 0 || S_ISREG(there.st_mode)) return;
  throw std::system_error(EINVAL, std::generic_category(), path + " is not a regular file");
}

// An empty `PATH.part` with a lock on it, -1 where another open trace has it. What a killed process
// left there is replaced.
int claim(const std::string& part) {
  const int descriptor = ::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor < 0) {
    throw std::system_error(errno, std::generic_category(), "cannot write the trace " + part);
  }
  struct stat of_descriptor{};
  struct stat of_path{};
  const bool is_free =
      ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 && ::fstat(descriptor, &of_descriptor) == 0 &&
      ::lstat(part.c_str(), &of_path) == 0 &&  // else closed meanwhile
      of_descriptor.st_ino == of_path.st_ino && of_descriptor.st_dev == of_path.st_dev &&
      S_ISREG(of_path.st_mode) && ::ftruncate(descriptor, 0) == 0;
  if (is_free) return descriptor;
  ::close(descriptor);
  return -1;
}

// "run.json" becomes "run.123.json", and "run.123.2.json" at the next try.
std::string with_process(const std::string& path, int tries) {
  std::string mark = '.' + std::to_string(::getpid());
  if (tries > 1) mark += '.' + std::to_string(tries);
  const std::size_t name = path.find_last_of('/') + 1;
  const std::size_t dot = path.find_last_of('.');
  const bool has_suffix = dot != std::string::npos && dot > name;
  return std::string(path).insert(has_suffix ? dot : path.size(), mark);
}

std::string process_name() {
  std::string name;
  std::ifstream file("/proc/self/comm");
  std::getline(file, name);
  return name.empty() ? "program" : name;
}

std::int64_t number_in(const char* const (&variables)[4], std::int64_t otherwise) {
  for (const char* variable : variables) {
    const char* text = std::getenv(variable);
    char* end = nullptr;
    const long long number = text != nullptr ? std::strtoll(text, &end, 10) : 0;
    if (text != nullptr && end != text && *end == '\0' && number >= 0) return number;
  }
  return otherwise;
}

constexpr const char* kRankVariables[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                          "SLURM_PROCID"};
constexpr const char* kSizeVariables[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                          "SLURM_NTASKS"};

TraceState public_state(const trace::State& state) {
  return {state.open, state.failed ? state.error : "", state.events, state.dropped, state.unplaced,
          state.bytes};
}

}  // namespace

TraceArgs& TraceArgs::add_json(std::string_view key, std::string_view json) {
  if (!json_.empty()) json_ += ',';
  trace::append_json(json_, key);
  json_.append(":").append(json);
  return *this;
}

TraceArgs& TraceArgs::add(std::string_view key, std::string_view text) {
  std::string json;
  trace::append_json(json, text);
  return add_json(key, json);
}

TraceArgs& TraceArgs::add(std::string_view key, double value) {
  if (std::isnan(value)) return add(key, std::string_view("nan"));
  if (std::isinf(value)) return add(key, std::string_view(value > 0 ? "inf" : "-inf"));
  return add_json(key, trace::json_number(value));
}

TraceWriter::TraceWriter(std::string path, const TraceOptions& options)
    : path_(std::move(path)), generation_(driver::fork_generation()), collects_(options.collect) {
  if (path_.empty()) throw std::invalid_argument("path: expected a file's name, got an empty one");
  if (path_.size() >= 3 && path_.compare(path_.size() - 3, 3, ".gz") == 0) {
    throw std::invalid_argument("path: the C++ library does not compress; write '" +
                                path_.substr(0, path_.size() - 3) + "' and run gzip on it");
  }
  refuse_other_than_file(path_);
  const std::string wanted = path_;
  for (int tries = 1; descriptor_ < 0 && tries <= kMostTries; ++tries) {
    if (tries > 1) path_ = with_process(wanted, tries - 1);
    part_ = path_ + ".part";
    descriptor_ = claim(part_);
  }
  if (descriptor_ < 0) {
    throw std::system_error(EEXIST, std::generic_category(), "cannot write the trace " + wanted);
  }
  try {
    ranges::connect_samples_to_traces();
    trace::OutputOptions output;
    output.descriptor = descriptor_;
    output.where = part_;
    output.sink = {options.collect, false, options.buffer_mib << 20U};
    output.run = {process_name(), number_in(kRankVariables, 0), number_in(kSizeVariables, 1),
                  options.args.json_};
    number_ = trace::open(std::move(output));
  } catch (...) {
    ::unlink(part_.c_str());
    ::close(descriptor_);
    throw;
  }
}

TraceWriter::~TraceWriter() { close(); }

std::int64_t TraceWriter::now_ns() noexcept { return driver::host_now(); }

bool TraceWriter::is_open() const noexcept {
  return open_.load(std::memory_order_acquire) && generation_ == driver::fork_generation();
}

void TraceWriter::note(std::uint8_t kind, std::string_view name, std::string_view category,
                       std::int64_t begin, std::int64_t end, unsigned tid, const std::string& args,
                       std::uint64_t id) {
  if (!is_open()) return;
  trace::Event event;
  event.kind = static_cast<Kind>(kind);
  event.target = number_;
  event.tid = tid;
  event.depth = trace::kUnknownDepth;
  event.id = id;
  event.begin = begin;
  event.end = end;
  trace::note(event, name, category, args);
}

void TraceWriter::push(std::string_view name, std::string_view category, double duration_ms,
                       unsigned tid) {
  const bool fits = duration_ms >= 0.0 && duration_ms <= kLongestMs;  // not NaN
  if (!fits) {
    throw std::invalid_argument("duration_ms: expected milliseconds from 0 to a year's, got " +
                                std::to_string(duration_ms));
  }
  const HostNanoseconds now = driver::host_now();
  complete(name, now - static_cast<HostNanoseconds>(duration_ms * 1e6), now, category, tid);
}

void TraceWriter::complete(std::string_view name, std::int64_t begin_ns, std::int64_t end_ns,
                           std::string_view category, unsigned tid, const TraceArgs& args) {
  if (end_ns < begin_ns) {
    throw std::invalid_argument("end_ns: expected a time from begin_ns on, " +
                                std::to_string(begin_ns) + "; got " + std::to_string(end_ns));
  }
  note(number_of(Kind::kSlice), name, category, begin_ns, end_ns, tid, args.json_);
}

void TraceWriter::instant(std::string_view name, std::string_view category, unsigned tid,
                          std::int64_t at_ns, const TraceArgs& args) {
  note(number_of(Kind::kInstant), name, category, 0, at_ns != 0 ? at_ns : now_ns(), tid,
       args.json_);
}

void TraceWriter::counter(std::string_view name, double value, std::int64_t at_ns) {
  if (!std::isfinite(value)) return;
  TraceArgs series;
  series.add("value", value);
  note(number_of(Kind::kCounter), name, {}, 0, at_ns != 0 ? at_ns : now_ns(), 0, series.json_);
}

void TraceWriter::flow(std::uint8_t kind, std::uint64_t id, std::string_view name, unsigned tid) {
  if (id >= kEndOfFlows) {
    throw std::invalid_argument("id: expected a number below 2^40, got " + std::to_string(id));
  }
  note(kind, name, {}, 0, now_ns(), tid, {}, id);
}

void TraceWriter::flow_start(std::uint64_t id, std::string_view name, unsigned tid) {
  flow(number_of(Kind::kFlowStart), id, name, tid);
}
void TraceWriter::flow_step(std::uint64_t id, std::string_view name, unsigned tid) {
  flow(number_of(Kind::kFlowStep), id, name, tid);
}
void TraceWriter::flow_end(std::uint64_t id, std::string_view name, unsigned tid) {
  flow(number_of(Kind::kFlowEnd), id, name, tid);
}

void TraceWriter::flush() {
  if (is_open()) trace::flush(number_);
  api::emit_pending_warnings();
}

void TraceWriter::complete_file() {
  const trace::State state = trace::close(number_);
  last_ = public_state(state);
  if (state.dropped != 0) {
    driver::warn("gpuprof: the trace " + path_ + " lacks " + std::to_string(state.dropped) +
                 " events, for which there was no room: give it more with buffer_mib");
  }
  if (!state.failed && ::rename(part_.c_str(), path_.c_str()) != 0) {
    last_.error = std::generic_category().message(errno);
    driver::warn("gpuprof: cannot write the trace " + path_ + ": " + last_.error +
                 "; what there is stays in " + part_);
  }
}

void TraceWriter::close() noexcept {
  if (!is_open()) return;
  try {
    if (collects_) gpuprof::flush();  // before the lock: it may call a handler of warnings
  } catch (const std::exception&) {   // out of memory: the trace lacks what is pending
  }
  {
    const std::lock_guard lock(closing_);
    if (!is_open()) return;
    try {
      complete_file();
    } catch (const std::exception& error) {
      driver::warn(std::string("gpuprof: a trace was not completed: ") + error.what());
    }
    ::close(descriptor_);  // last: the lock of the file keeps the name
    open_.store(false, std::memory_order_release);
  }
  api::emit_pending_warnings();
}

TraceState TraceWriter::state() const {
  if (generation_ != driver::fork_generation()) return {};  // the lock may be held for ever
  const std::lock_guard lock(closing_);
  return is_open() ? public_state(trace::state(number_)) : last_;
}

void name_thread(std::string_view name) {
  trace::name_thread(trace::thread_id(), std::string(name));
}

GPUPROF_END_NAMESPACE
