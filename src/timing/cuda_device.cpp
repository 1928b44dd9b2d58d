#include <map>
#include <utility>

#include "driver/cuda_thread_state.hpp"
#include "timing/cuda_capture.hpp"
#include "timing/cuda_contexts.hpp"
#include "timing/cuda_event_clock.hpp"
#include "timing/device.hpp"

namespace gpuprof::timing::device {

using contexts::as_stream;
using driver::check;
using driver::Error;
using driver::ErrorKind;
using driver::EventAccess;
using driver::Table;
using driver::Warning;

namespace {

void forget_pair(Sample& sample) noexcept {
  sample.start = sample.end = nullptr;
  sample.in_graph.reset();
}

// Fails a sample with its reason, and warns of the first failure.
void fail(Sample& sample, const Error& error, Warning warning, const char* consequence) noexcept {
  try {
    if (sample.events != nullptr) {
      sample.events->note_failure(error);
      contexts::forget_lost();
    }
    forget_events(sample);
    if (!sample.keeps_pair) {
      driver::warn_once(warning, std::string("gpuprof: ") + error.what() + ". " + consequence);
    }
  } catch (...) {  // out of memory: no warning
  }
  sample.fail(error);
}

void fail_record(Sample& sample, const Error& error) noexcept {
  sample.host_end = host_now();
  if (error.kind() == ErrorKind::kForked) {
    fail(sample, error, Warning::kForkedScope, "CUDA scopes measure nothing in this process");
  } else if (error.code() == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
    fail(sample, error, Warning::kCaptureImplicit,
         "A scope on the legacy default stream met another stream's capture and was not recorded; "
         "give the scope a stream of its own, or capture on a non-blocking stream");
  } else {
    fail(sample, error, Warning::kScopeFailed,
         "The program goes on; scopes that the driver refuses measure nothing");
  }
}

void record(const EventAccess& access, const Sample& sample, CUevent event, std::uintptr_t stream) {
  if (sample.external()) {
    check(access.record_in_graph(event, as_stream(stream)), "cuEventRecordWithFlags");
    return;
  }
  check(access.record(event, as_stream(stream)), "cuEventRecord");
}

// Leaves the sample with a pair of the right clock, or false if there is none left.
bool provide_pair(Sample& sample, EventClock& clock) {
  const bool reusable =
      sample.start != nullptr && sample.events == &clock && !sample.external() && !clock.lost();
  if (reusable) return true;
  forget_events(sample);
  sample.events = &clock;
  EventPair pair;
  if (!clock.take(pair)) return false;
  if (sample.keeps_pair) clock.note_kept(1);
  sample.start = pair.start;
  sample.end = pair.end;
  return true;
}

// The same with a pair that becomes nodes of the capture. Its owner shares the pair.
void provide_pair_for_graph(Sample& sample, EventClock& clock, unsigned long long capture) {
  forget_events(sample);
  sample.events = &clock;
  const auto pair = std::make_shared<const GraphEvents>(clock, capture);
  sample.start = pair->start.handle();
  sample.end = pair->end.handle();
  capture_owner.keep(capture, {pair, &pair->start});
  capture_owner.keep(capture, {pair, &pair->end});
  sample.in_graph = pair;
}

contexts::Found find_clock(const Table& table, Sample& sample, int ordinal) {
  try {
    const contexts::Found found = contexts::find(table, sample.stream, ordinal);
    if (sample.events != found.clock) forget_events(sample);
    sample.events = found.clock;  // later failures concern this clock
    return found;
  } catch (const Error&) {  // does not concern the clock of an earlier start
    forget_events(sample);
    sample.events = nullptr;
    throw;
  }
}

void begin_or_throw(Sample& sample, bool in_capture, int ordinal) {
  const Table& table = driver::ready();
  // Asked first, because cuStreamGetCtx returns 901 for a stream whose capture is broken. It is
  // never called for a default stream.
  const bool is_default = contexts::is_default_stream(sample.stream);
  captures::State capture;
  const auto is_skipped = [&] {
    capture = captures::state_of(table, sample.stream);
    return capture.capturing() && !captures::may_record(sample, capture, in_capture);
  };
  if (!is_default && is_skipped()) return;
  const contexts::Found found = find_clock(table, sample, ordinal);
  const driver::CurrentContext current(table, found.to_push);
  if (is_default && is_skipped()) return;
  const bool capturing = capture.capturing();
  if (capturing) {
    provide_pair_for_graph(sample, *found.clock, capture.id);
  } else if (!provide_pair(sample, *found.clock)) {
    driver::warn_once(Warning::kDropped,
                      "gpuprof: 4096 timed spans wait to be read, so new ones are dropped and "
                      "counted; call stats() or flush() of gpuprof more often");
    sample.finish(SampleStatus::kDropped);
    return;
  }
  if (!capturing && timeline::wanted.load(std::memory_order_relaxed)) {
    sample.gpu_begin.anchor = found.clock->timeline().newest();
    if (!is_default) sample.stream_id = contexts::id_of(table, sample.stream);
  }
  record(found.access, sample, sample.start, sample.stream);
  sample.host_begin = host_now();
}

// Tells the owner of a capture that a scope is left, once its end was recorded or failed to be.
struct Leaving {
  const captures::State& capture;
  const Sample& sample;
  const std::uintptr_t stream;

  ~Leaving() {
    if (capture.status != CU_STREAM_CAPTURE_STATUS_ACTIVE || sample.keeps_pair) return;
    capture_owner.note_scope(capture.id, sample, stream, /*is_entered=*/false);
  }
};

void record_end(Sample& sample, std::uintptr_t stream) {
  const Table& table = driver::ready();
  // First of all: a stream dies with its context, and must not be used in any call then.
  const EventAccess access = sample.events->access();
  const driver::CurrentContext current(table, contexts::to_push(stream, *sample.events));
  const captures::State capture = captures::state_of(table, stream);
  const Leaving leaving{capture, sample, stream};
  const bool capturing = capture.capturing();
  if (capturing != sample.external()) {
    driver::refuse(capturing
                       ? "a stream capture began between the start and the end of a timed span"
                       : "the stream capture ended between the start and the end of a timed span");
  }
  if (capture.id != 0 && capture.id != sample.in_graph->capture) {
    driver::refuse(
        "the stream capture in which a timed span began has ended, and its end is in "
        "another one");
  }
  sample.host_end = host_now();
  record(access, sample, sample.end, stream);
  if (capturing && !sample.keeps_pair) capture_owner.recorded(capture.id, sample);
}

bool belongs_to_parent(Sample& sample) {
  if (sample.generation == driver::fork_generation()) return false;
  forget_pair(sample);
  sample.events = nullptr;
  fail(sample,
       Error(ErrorKind::kForked,
             "the span was begun before this process was forked, and the parent's CUDA objects "
             "cannot be used here"),
       Warning::kForkedScope, "CUDA scopes measure nothing in this process");
  return true;
}

// Reads both events of a sample whose end is complete. False where the start is not: it is on
// another stream, which the end did not wait for.
bool read_pair(Sample& sample, const EventAccess& access) {
  float ms = 0.0F;
  const CUresult status = access.elapsed(ms, sample.start, sample.end);
  if (status == CUDA_ERROR_NOT_READY) return false;
  check(status, "cuEventElapsedTime");
  sample.device_ms = static_cast<double>(ms);
  CudaTimeline::Held anchor;
  sample.events->timeline().mark(sample, anchor, access);
  return true;
}

// Queries the end event once. True once the sample is final.
bool poll_kept_pair(Sample& sample) {
  const Table& table = driver::ready();
  const EventAccess access = sample.events->access();
  const driver::RelaxedCapture relaxed(table);
  const CUresult status = access.query(sample.end);
  if (status == CUDA_ERROR_NOT_READY) return false;
  check(status, "cuEventQuery");
  if (!read_pair(sample, access)) return false;
  sample.finish(SampleStatus::kDone);
  return true;
}

bool poll_queued(Sample& sample) {
  EventClock& clock = *sample.events;
  // The query before the drain surfaces a failure of the work itself.
  if (const auto access = clock.try_access()) {
    if (const CUevent end = clock.pending_end(sample); end != nullptr) {
      const driver::RelaxedCapture relaxed(driver::ready());
      const CUresult status = access->query(end);
      if (status == CUDA_ERROR_NOT_READY) return false;
      if (status != CUDA_SUCCESS) clock.note_failure(driver::error_of(status, "cuEventQuery"));
    }
  }
  clock.drain(sample.queue);
  contexts::forget_lost();
  return sample.load_status() != SampleStatus::kPending;
}

bool poll(Sample& sample) noexcept {
  try {
    if (sample.load_status() != SampleStatus::kPending) return true;
    if (belongs_to_parent(sample)) return true;
    return sample.keeps_pair ? poll_kept_pair(sample) : poll_queued(sample);
  } catch (const Error& error) {
    if (!sample.keeps_pair) return false;  // it is queued: the next drain fails it
    fail(sample, error, Warning::kScopeFailed, "");
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

void require() { driver::ready(); }

bool is_ready() noexcept { return driver::is_ready(); }

bool current_on_this_thread() noexcept {
  const Table* table = driver::in_use_or_null();
  CUcontext context = nullptr;
  return table != nullptr && table->cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != nullptr;
}

bool initialised_in_process() noexcept { return driver::in_use_or_null() != nullptr; }

bool belongs_to_thread(std::uintptr_t stream, EventClock* clock) noexcept {
  if (stream == contexts::kPerThreadStream) return true;
  if (contexts::is_default_stream(stream)) return false;
  const Table* table = driver::in_use_or_null();
  try {
    return table == nullptr || (clock != nullptr && !clock->check_alive()) ||
           captures::is_capturing(*table, stream);
  } catch (...) {  // the call itself meets the error
    return true;
  }
}

int ordinal_of(const EventClock* clock) noexcept { return clock->ordinal(); }

void begin(Sample& sample, bool in_capture, int ordinal) noexcept {
  if (const std::uint32_t now = driver::fork_generation(); sample.generation != now) {
    forget_pair(sample);
    sample.events = nullptr;
    sample.generation = now;
  }
  sample.gpu_begin = {};
  driver::call_note().scope.store(&sample.path->text, std::memory_order_relaxed);
  try {
    begin_or_throw(sample, in_capture, ordinal);
  } catch (const Error& error) {
    fail_record(sample, error);
  } catch (...) {
    sample.finish(SampleStatus::kDropped);
  }
  if (sample.load_status() != SampleStatus::kOpen) sample.host_begin = host_now();
}

bool may_end_on(const Sample& sample, std::uintptr_t stream) {
  const Table& table = driver::ready();
  static_cast<void>(sample.events->access());  // a dead context's stream must not be used
  if (contexts::is_default_stream(stream)) return true;
  CUcontext context = nullptr;
  check(table.cuStreamGetCtx(as_stream(stream), &context), "cuStreamGetCtx");
  return context == sample.events->context();
}

bool end(Sample& sample, std::uintptr_t stream) noexcept {
  try {
    if (sample.generation != driver::fork_generation()) sample.host_end = host_now();
    if (belongs_to_parent(sample)) return false;
    record_end(sample, stream);
    if (sample.external()) {
      sample.finish(SampleStatus::kCaptured);
      return false;
    }
    sample.finish(SampleStatus::kPending);
    if (sample.keeps_pair) return false;
    add_reference(&sample);
    sample.events->push(&sample);
    return true;
  } catch (const Error& error) {
    fail_record(sample, error);
  } catch (...) {
    forget_events(sample);
    sample.finish(SampleStatus::kDropped);
  }
  return false;
}

double end_and_wait_for_all(Sample& sample) {
  record_end(sample, sample.stream);
  const Table& table = driver::ready();
  const driver::CurrentContext current(table, sample.events->context());
  EventPair after;
  if (!sample.events->take(after)) {
    driver::refuse("all event pairs are in use; call flush() of gpuprof first");
  }
  float tail_ms = 0.0F;
  try {
    check(table.cuCtxSynchronize(), "cuCtxSynchronize");
    check(sample.events->access().record(after.end, as_stream(sample.stream)), "cuEventRecord");
    check(table.cuCtxSynchronize(), "cuCtxSynchronize");
    const EventAccess access = sample.events->access();
    check(access.elapsed(tail_ms, sample.end, after.end), "cuEventElapsedTime");
    read_pair(sample, access);
  } catch (...) {
    sample.events->give_back(after);
    throw;
  }
  sample.events->give_back(after);
  forget_events(sample);
  sample.finish(SampleStatus::kDone);
  return static_cast<double>(tail_ms);
}

void drain() noexcept {
  try {
    if (driver::loaded_or_null() == nullptr) return;
    driver::look_for_hangs();
    for (EventClock* clock : contexts::all()) clock->drain();
    contexts::forget_lost();
  } catch (...) {  // out of memory: a later drain reads them
  }
}

bool wait(Sample& sample, HostNanoseconds until) noexcept {
  return poll_until(until, [&] {
    driver::look_for_hangs();
    return poll(sample);
  });
}

std::vector<SampleRef> pending_tails() {
  std::vector<SampleRef> tails;
  for (EventClock* clock : contexts::all()) clock->append_tails(tails);
  return tails;
}

std::vector<PendingCount> pending_counts() {
  std::vector<PendingCount> counts;
  for (EventClock* clock : contexts::all()) clock->append_counts(counts);
  return counts;
}

std::vector<Row> rows_with_pending(bool with_bins) {
  const auto is_earlier = [](const Path* a, const Path* b) {
    return std::pair(a->order, a) < std::pair(b->order, b);  // the root's order is no entry's
  };
  std::map<const Path*, std::uint64_t, decltype(is_earlier)> pending(is_earlier);
  for (const PendingCount& each : pending_counts()) pending[each.path] += each.count;
  std::vector<Row> rows = statistics::rows(with_bins);
  for (Row& row : rows) {
    const auto found = row.has_device ? pending.find(row.path) : pending.end();
    if (found == pending.end()) continue;
    row.pending = found->second;
    pending.erase(found);
  }
  for (const auto& [path, count] : pending) {
    rows.push_back({path, kCudaClock, true, {}, {}, 0, 0, 0, {}, {}, count});
  }
  return rows;
}

Work work_left(std::vector<std::uintptr_t>& threads) noexcept {
  Work work = Work::kUnseen;
  try {
    if (driver::loaded_or_null() == nullptr) return work;
    for (EventClock* clock : contexts::all()) {
      const Work of_clock = clock->work_left(threads);
      if (of_clock == Work::kUnderWay) return of_clock;
      // One open scope leaves open what the whole GPU does.
      if (work != Work::kScopeOpen && of_clock != Work::kUnseen) work = of_clock;
    }
  } catch (...) {  // out of memory: the next look sees it
  }
  return work;
}

void forget_events(Sample& sample) noexcept {
  if (sample.start == nullptr) return;
  const EventPair pair{sample.start, sample.end};
  const bool external = sample.external();
  forget_pair(sample);
  if (!external && sample.generation == driver::fork_generation()) {
    sample.events->give_back(pair);
    if (sample.keeps_pair) sample.events->note_kept(-1);
  }
}

void synchronize(std::uintptr_t stream, int ordinal) {
  const Table& table = driver::ready();
  const contexts::Found found = contexts::find(table, stream, ordinal);
  const driver::CurrentContext current(table, found.clock->context());
  if (captures::is_capturing(table, stream)) return;
  check(table.cuCtxSynchronize(), "cuCtxSynchronize");
}

}  // namespace gpuprof::timing::device
