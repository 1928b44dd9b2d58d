#include <pthread.h>

#include <algorithm>
#include <utility>

#include "driver/cuda_thread_state.hpp"
#include "driver/process.hpp"
#include "graphs/capture.hpp"
#include "graphs/cuda_handles.hpp"
#include "timing/cuda_capture.hpp"
#include "timing/cuda_contexts.hpp"
#include "timing/device.hpp"

namespace gpuprof::graphs {

using driver::check;
using driver::Error;
using driver::Table;
using timing::contexts::as_stream;
using timing::contexts::to_push;

namespace {

constexpr int kEndTries = 3;

// The open captures of this process. The lock is held over no driver call.
struct OpenCaptures {
  driver::ForkMutex mutex;
  std::vector<std::weak_ptr<Capture>> captures;
};

OpenCaptures& registry() { return driver::immortal<OpenCaptures>(); }

// Whether the locals of this thread are destroyed; a capture that begins later ends with its
// object.
thread_local bool thread_ended = false;

// Aborted where an ending thread leaves them open: a global one would refuse other threads'
// allocations for ever.
thread_local std::vector<std::weak_ptr<Capture>> captures_of_thread;

void abort_captures_of_thread() noexcept {
  for (const auto& entry : captures_of_thread) {
    if (const auto capture = entry.lock()) capture->abort();
  }
  thread_ended = true;
}
thread_local const driver::AtThreadEnd<abort_captures_of_thread> thread_end;

void forget_dead(std::vector<std::weak_ptr<Capture>>& captures) {
  captures.erase(std::remove_if(captures.begin(), captures.end(),
                                [](const auto& entry) { return entry.expired(); }),
                 captures.end());
}

// Calls `act` with the open capture that has this number.
template <typename Act>
void with_open(unsigned long long id, Act&& act, bool or_with_all = false) noexcept {
  try {
    for (const std::shared_ptr<Capture>& capture : open_captures()) {
      if (or_with_all || capture->id() == id) act(*capture);
    }
  } catch (...) {  // out of memory: events and spans can be read as long as their samples live
  }
}

timing::CaptureClaim claim(unsigned long long id) noexcept {
  auto result = timing::CaptureClaim::kForeign;
  with_open(id, [&](Capture& capture) {
    capture.look();
    result = capture.options().timers == GraphTimers::kStrip ? timing::CaptureClaim::kStrip
                                                             : timing::CaptureClaim::kRecord;
  });
  return result;
}

void keep(unsigned long long id, const std::shared_ptr<const timing::OwnEvent>& event) noexcept {
  with_open(id, [&](Capture& capture) { capture.add_event(event); });
}

void recorded(unsigned long long id, timing::Sample& sample) noexcept {
  with_open(id, [&](Capture& capture) {
    capture.add_timer(sample);
    capture.look();
  });
}

// Where `id` is 0 the driver tells whether the stream is in a capture.
void note_scope(unsigned long long id, const timing::Sample& sample, std::uintptr_t stream,
                bool is_entered) noexcept {
  with_open(
      id, [&](Capture& capture) { capture.note_scope(sample, stream, is_entered); },
      /*or_with_all=*/id == 0);
}

// How the driver's log writes a thread.
std::uint64_t this_thread() noexcept { return static_cast<std::uint64_t>(pthread_self()); }

// The enumerations have the driver's values.
CUstreamCaptureMode driver_mode(CaptureMode mode) noexcept {
  return static_cast<CUstreamCaptureMode>(mode);
}
CaptureStatus status_from(CUstreamCaptureStatus status) noexcept {
  return static_cast<CaptureStatus>(status);
}

CaptureStatus ask(const Table& table, std::uintptr_t stream) {
  return status_from(timing::captures::status_of(table, stream));
}

bool captures_still(const Table& table, std::uintptr_t stream) noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return table.cuStreamIsCapturing(as_stream(stream), &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Ends whatever capture the stream is in, more than once where the driver says that it still is in
// one: a stream left in a capture can never be used again.
CUresult end_for_sure(const Table& table, std::uintptr_t stream, CUgraph& graph) noexcept {
  CUresult first = table.cuStreamEndCapture(as_stream(stream), &graph);
  for (int tries = 1; first != CUDA_SUCCESS && tries < kEndTries; ++tries) {
    if (!captures_still(table, stream)) break;
    CUgraph late = nullptr;
    table.cuStreamEndCapture(as_stream(stream), &late);
    if (late != nullptr) table.cuGraphDestroy(late);
  }
  if (first != CUDA_SUCCESS && graph != nullptr) {
    table.cuGraphDestroy(graph);
    graph = nullptr;
  }
  return first;
}

// The same, and destroys the graph. Returns the driver's answer to the first end.
CUresult discard_capture(const Table& table, std::uintptr_t stream) noexcept {
  CUgraph graph = nullptr;
  const CUresult status = end_for_sure(table, stream, graph);
  if (graph != nullptr) table.cuGraphDestroy(graph);
  return status;
}

// What must be current for a call on the stream. Only a default stream needs a context; another
// stream must not be asked for its own, which answers 901 once its capture is broken.
CUcontext context_for(const Table& table, std::uintptr_t stream, int ordinal) {
  if (!timing::contexts::is_default_stream(stream)) return nullptr;
  return timing::contexts::find(table, stream, ordinal).to_push;
}

std::string already_capturing(std::uintptr_t stream) {
  std::string text =
      "the stream " + std::to_string(stream) + " is being captured already; end that capture first";
  for (const auto& capture : open_captures()) {
    if (capture->stream() == stream) {
      text += " (gpuprof began it on thread " + std::to_string(capture->thread()) + ")";
    }
  }
  return text;
}

}  // namespace

Capture::Capture(std::uintptr_t stream, const CaptureOptions& options, bool attached)
    : stream_(stream), options_(options), attached_(attached), thread_(this_thread()) {
  if (options.scopes != nullptr) labels_.begin(*options.scopes, stream);
}

std::shared_ptr<Capture> Capture::begin(std::uintptr_t stream, int ordinal,
                                        const CaptureOptions& options) {
  const Table& table = driver::ready();
  if (stream <= 1) {  // by either of its handles
    throw Error(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
                "cuStreamBeginCapture",
                "the legacy default stream cannot be captured; pass another one as stream=, best a "
                "non-blocking one. (The driver was not called.)");
  }
  const driver::CurrentContext current(table, context_for(table, stream, ordinal));
  if (ask(table, stream) != CaptureStatus::kNone) {
    refuse(already_capturing(stream));
  }
  const std::shared_ptr<Capture> capture(new Capture(stream, options, false));
  capture->clock_ = timing::contexts::find(table, stream, ordinal).clock;
  capture->log_from_ = driver::log_position(table);
  bool begun = false;
  try {
    check(table.cuStreamBeginCapture(as_stream(stream), driver_mode(options.mode)),
          "cuStreamBeginCapture");
    begun = true;
    capture->read_id();
    open(capture);
  } catch (...) {
    if (!driver::is_blocked() && (begun || captures_still(table, stream))) {
      discard_capture(table, stream);
    }
    throw;
  }
  return capture;
}

std::shared_ptr<Capture> Capture::attach(std::uintptr_t stream, const CaptureOptions& options) {
  const Table& table = driver::ready();
  const std::shared_ptr<Capture> capture(new Capture(stream, options, true));
  capture->clock_ = timing::contexts::find(table, stream, 0).clock;
  capture->log_from_ = driver::log_position(table);
  capture->read_id();
  open(capture);
  return capture;
}

// Registers a capture that is open now. It ends with this thread, unless it may end on any.
void Capture::open(const std::shared_ptr<Capture>& capture) {
  if (!capture->attached_ && capture->options_.mode != CaptureMode::kRelaxed && !thread_ended) {
    thread_end.touch();
    forget_dead(captures_of_thread);
    captures_of_thread.push_back(capture);
  }
  OpenCaptures& all = registry();
  const std::lock_guard lock(all.mutex);
  forget_dead(all.captures);
  all.captures.push_back(capture);
  capture->open_ = true;
}

// Moves out the events and timers. False, with nothing done, if the capture is not open.
bool Capture::close(CapturedParts& parts) noexcept {
  const std::lock_guard lock(registry().mutex);
  if (!std::exchange(open_, false)) return false;
  parts.events = std::exchange(events_, {});
  parts.timers = std::exchange(timers_, {});
  return true;
}

void Capture::read_id() {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  check(driver::ready().cuStreamGetCaptureInfo(as_stream(stream_), &status, &id, nullptr, nullptr,
                                               nullptr),
        "cuStreamGetCaptureInfo");
  id_ = id;
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    refuse("the capture on stream " + std::to_string(stream_) +
           " was broken as soon as it had begun");
  }
}

// Whether the stream still is in this capture. Its handle may be another stream's by now, with a
// capture of its own; a broken capture does not tell its number.
bool Capture::still_there() const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  const CUresult answer = driver::ready().cuStreamGetCaptureInfo(as_stream(stream_), &status, &id,
                                                                 nullptr, nullptr, nullptr);
  if (answer != CUDA_SUCCESS) return true;  // the end tells what is wrong
  return status == CU_STREAM_CAPTURE_STATUS_INVALIDATED ||
         (status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id == id_);
}

CapturedParts Capture::end() {
  if (!open()) {
    refuse(
        "this capture is over: it was ended or thrown away before, or the thread that "
        "began it has ended");
  }
  if (timing::device::forked()) driver::throw_if_blocked();
  const bool bound = options_.mode != CaptureMode::kRelaxed;
  if (bound && thread_ != this_thread()) {
    throw Error(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
                "cuStreamEndCapture",
                "thread " + std::to_string(thread_) +
                    " began this capture and must end it, or begin it with mode=\"relaxed\". (The "
                    "driver was not called: it would have thrown the capture away. It is still "
                    "open.)");
  }
  look();
  CapturedParts parts;
  parts.labels = label_nodes();
  close(parts);
  parts.clock = clock_;
  if (attached_) return parts;
  const Table& table = driver::ready();
  const driver::CurrentContext current(table, to_push(stream_, *clock_));
  if (!clock_->check_alive() || !still_there()) {
    refuse("the capture on stream " + std::to_string(stream_) +
           " is gone: the stream or its context was destroyed, or somebody else ended the "
           "capture");
  }
  CUgraph graph = nullptr;
  check(end_for_sure(table, stream_, graph), "cuStreamEndCapture");
  parts.graph.reset(graph);
  return parts;
}

void Capture::abort() noexcept {
  CapturedParts parts;  // whose events go after the capture
  if (!close(parts)) return;
  try {
    if (attached_ || !clock_->check_alive()) return;
    const Table& table = driver::ready();
    const driver::CurrentContext current(table, to_push(stream_, *clock_));
    if (still_there()) discard_capture(table, stream_);
  } catch (...) {  // the driver is gone, or the context: and with it the capture
  }
}

void Capture::look() noexcept {
  try {
    CapturePosition at;
    void* const graph = locate(stream_, at);
    if (graph == nullptr) return;
    const Table& table = driver::ready();
    std::string kernel = at.frontier.empty() ? "" : kernel_of(table, as_node(at.frontier.back()));
    if (kernel.empty() && at.nodes > 0) kernel = newest_kernel(table, as_graph(graph), at.nodes);
    CaptureProgress seen{at.nodes, progress().last_kernel};
    if (!kernel.empty()) seen.last_kernel = std::move(kernel);
    const std::lock_guard lock(registry().mutex);
    progress_ = std::move(seen);
  } catch (...) {  // out of memory, or the driver is gone: nothing was seen
  }
}

CaptureStatus Capture::status() {
  if (!open()) return CaptureStatus::kNone;
  look();
  const Table& table = driver::ready();
  if (!clock_->check_alive()) return CaptureStatus::kNone;
  const driver::CurrentContext current(table, to_push(stream_, *clock_));
  return still_there() ? ask(table, stream_) : CaptureStatus::kNone;
}

bool Capture::open() const noexcept {
  const std::lock_guard lock(registry().mutex);
  return open_;
}

CaptureProgress Capture::progress() const {
  const std::lock_guard lock(registry().mutex);
  return progress_;
}

void Capture::add_timer(timing::Sample& sample) {
  timing::add_reference(&sample);
  timing::SampleRef reference(&sample);
  const std::lock_guard lock(registry().mutex);
  timers_.push_back(std::move(reference));
}

void Capture::add_event(const std::shared_ptr<const timing::OwnEvent>& event) {
  const std::lock_guard lock(registry().mutex);
  events_.push_back(event);
}

std::vector<std::shared_ptr<Capture>> open_captures() {
  std::vector<std::shared_ptr<Capture>> open;
  {
    OpenCaptures& all = registry();
    const std::lock_guard lock(all.mutex);
    for (const auto& entry : all.captures) {
      if (auto capture = entry.lock()) open.push_back(std::move(capture));
    }
  }
  // Outside of the lock: dropping the last reference ends a capture.
  open.erase(std::remove_if(open.begin(), open.end(),
                            [](const auto& capture) { return !capture->open(); }),
             open.end());
  return open;
}

void own_captured_scopes() noexcept {
  timing::capture_owner = {&claim, &keep, &recorded, &note_scope};
}

void DiscardGraph::operator()(void* graph) const noexcept {
  const Table* table = driver::usable_or_null();
  if (table == nullptr || is_borrowed) return;
  const driver::RelaxedCapture relaxed(*table);
  table->cuGraphDestroy(as_graph(graph));
}

CaptureStatus status_of(std::uintptr_t stream, int ordinal) {
  const Table& table = driver::ready();
  const driver::CurrentContext current(table, context_for(table, stream, ordinal));
  return ask(table, stream);
}

StreamCapture capture_of(std::uintptr_t stream, int ordinal, std::size_t since) {
  const Table& table = driver::ready();
  const driver::CurrentContext current(table, context_for(table, stream, ordinal));
  StreamCapture result;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  cuuint64_t id = 0;
  check(table.cuStreamGetCaptureInfo(as_stream(stream), &status, &id, &graph, nullptr, nullptr),
        "cuStreamGetCaptureInfo");
  result.status = status_from(status);
  if (result.status != CaptureStatus::kActive) return result;
  result.id = id;
  result.nodes = count_nodes(table, graph);
  if (result.nodes <= since) return result;
  // The driver lists them in the order in which they were captured.
  const std::vector<CUgraphNode> nodes = nodes_of(table, graph);
  for (std::size_t i = since; i < nodes.size() && !result.works; ++i) {
    int type = 0;
    check(type_of(table, nodes[i], type), "cuGraphNodeGetType");
    result.works = type != CU_GRAPH_NODE_TYPE_EVENT_RECORD &&
                   type != CU_GRAPH_NODE_TYPE_WAIT_EVENT && type != CU_GRAPH_NODE_TYPE_EMPTY;
  }
  return result;
}

int drop_capture(std::uintptr_t stream) { return discard_capture(driver::ready(), stream); }

void begin_empty_capture(std::uintptr_t stream) {
  constexpr auto kMode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  check(driver::ready().cuStreamBeginCapture(as_stream(stream), kMode), "cuStreamBeginCapture");
}

CaptureMode exchange_thread_mode(CaptureMode mode) {
  const Table& table = driver::ready();
  const CUstreamCaptureMode wanted = driver_mode(mode);
  CUstreamCaptureMode exchanged = wanted;
  const CUresult status = table.cuThreadExchangeStreamCaptureMode(&exchanged);
  if (status != CUDA_SUCCESS) {
    const Error error = driver::error_of(status, "cuThreadExchangeStreamCaptureMode");
    // It wrote the mode before, so it may have set the new one despite the error.
    if (exchanged != wanted) table.cuThreadExchangeStreamCaptureMode(&exchanged);
    throw error;
  }
  return static_cast<CaptureMode>(exchanged);
}

}  // namespace gpuprof::graphs
