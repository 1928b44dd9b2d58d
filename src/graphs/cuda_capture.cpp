#include "graphs/capture.hpp"

#include <pthread.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "driver/cuda_thread_state.hpp"
#include "graphs/cuda_handles.hpp"
#include "graphs/cuda_open_captures.hpp"
#include "timing/cuda_contexts.hpp"

namespace gpuprof::graphs {

using driver::check;
using driver::Error;
using driver::ErrorKind;
using driver::Table;
using timing::contexts::as_stream;

namespace {

constexpr int kEndTries = 3;
constexpr std::size_t kNewest = 64;  // nodes that are looked at for a kernel

// How the driver's log writes a thread.
std::uint64_t this_thread() noexcept { return static_cast<std::uint64_t>(pthread_self()); }

bool is_legacy(std::uintptr_t stream) noexcept { return stream <= 1; }

CUstreamCaptureMode driver_mode(CaptureMode mode) noexcept {
  switch (mode) {
    case CaptureMode::kGlobal:
      return CU_STREAM_CAPTURE_MODE_GLOBAL;
    case CaptureMode::kRelaxed:
      return CU_STREAM_CAPTURE_MODE_RELAXED;
    default:
      return CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  }
}

CaptureStatus status_from(CUstreamCaptureStatus status) noexcept {
  switch (status) {
    case CU_STREAM_CAPTURE_STATUS_ACTIVE:
      return CaptureStatus::kActive;
    case CU_STREAM_CAPTURE_STATUS_INVALIDATED:
      return CaptureStatus::kInvalidated;
    default:
      return CaptureStatus::kNone;
  }
}

CaptureStatus ask(const Table& table, std::uintptr_t stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  check(table.cuStreamIsCapturing(as_stream(stream), &status), "cuStreamIsCapturing");
  return status_from(status);
}

bool is_capturing(const Table& table, std::uintptr_t stream) noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return table.cuStreamIsCapturing(as_stream(stream), &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Ends whatever capture the stream is in, and again where the driver says that it is still in one:
// a stream left behind in a capture can never be used again.
CUresult end_for_sure(const Table& table, std::uintptr_t stream, CUgraph& graph) noexcept {
  CUresult first = table.cuStreamEndCapture(as_stream(stream), &graph);
  for (int tries = 1; first != CUDA_SUCCESS && tries < kEndTries; ++tries) {
    if (!is_capturing(table, stream)) break;
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

std::string kernel_of(const Table& table, CUgraphNode node) {
  int type = 0;
  if (type_of(table, node, type) != CUDA_SUCCESS || type != CU_GRAPH_NODE_TYPE_KERNEL) {
    return {};
  }
  CUDA_KERNEL_NODE_PARAMS params{};
  const char* name = nullptr;
  if (table.cuGraphKernelNodeGetParams(node, &params) != CUDA_SUCCESS) return {};
  const CUresult named = params.func != nullptr ? table.cuFuncGetName(&name, params.func)
                                                : table.cuKernelGetName(&name, params.kern);
  return named == CUDA_SUCCESS && name != nullptr ? name : "";
}

// The newest kernel of the graph, if it is among the last nodes. A capture appends its nodes.
std::string newest_kernel(const Table& table, CUgraph graph, std::size_t count) {
  std::vector<CUgraphNode> nodes(count);
  if (table.cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return {};
  nodes.resize(std::min(count, nodes.size()));
  const std::size_t oldest = nodes.size() > kNewest ? nodes.size() - kNewest : 0;
  for (std::size_t i = nodes.size(); i > oldest; --i) {
    std::string kernel = kernel_of(table, nodes[i - 1]);
    if (!kernel.empty()) return kernel;
  }
  return {};
}

// What has to be current for a call on the stream. Only a default stream needs any; another one
// must not be asked for its own, because that answers 901 once its capture is broken.
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
    : stream_(stream),
      options_(options),
      attached_(attached),
      thread_(this_thread()),
      generation_(driver::fork_generation()) {}

std::shared_ptr<Capture> Capture::begin(std::uintptr_t stream, int ordinal,
                                        const CaptureOptions& options) {
  const Table& table = driver::ready();
  if (is_legacy(stream)) {
    throw Error(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
                "cuStreamBeginCapture",
                "the legacy default stream cannot be captured; pass another one as stream=, best a "
                "non-blocking one. (The driver was not called.)");
  }
  const CUcontext context = context_for(table, stream, ordinal);
  const driver::CurrentContext current(table, context);
  if (ask(table, stream) != CaptureStatus::kNone) {
    throw Error(ErrorKind::kInvalidState, already_capturing(stream));
  }
  const std::shared_ptr<Capture> capture(new Capture(stream, options, false));
  capture->clock_ = timing::contexts::find(table, stream, ordinal).clock;
  if (timing::contexts::is_default_stream(stream)) {
    capture->context_ = capture->clock_->context();
  }
  capture->log_from_ = driver::log_position(table);
  const CUresult status = table.cuStreamBeginCapture(as_stream(stream), driver_mode(options.mode));
  if (status != CUDA_SUCCESS) {
    const Error error = driver::error_of(status, "cuStreamBeginCapture");
    CUgraph graph = nullptr;
    if (driver::blocked.load(std::memory_order_relaxed) == 0 && is_capturing(table, stream) &&
        end_for_sure(table, stream, graph) == CUDA_SUCCESS) {
      table.cuGraphDestroy(graph);
    }
    throw error;
  }
  try {
    capture->started();
    OpenCaptures::instance().enter(capture);
  } catch (...) {
    CUgraph graph = nullptr;
    if (driver::blocked.load(std::memory_order_relaxed) == 0 &&
        end_for_sure(table, stream, graph) == CUDA_SUCCESS) {
      table.cuGraphDestroy(graph);
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
  capture->started();
  OpenCaptures::instance().enter(capture);
  return capture;
}

// Notes the driver's number of the capture.
void Capture::started() {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  check(driver::ready().cuStreamGetCaptureInfo(as_stream(stream_), &status, &id, nullptr, nullptr,
                                               nullptr),
        "cuStreamGetCaptureInfo");
  id_ = id;
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    throw Error(ErrorKind::kInvalidState, "the capture on stream " + std::to_string(stream_) +
                                              " was broken as soon as it had begun");
  }
}

// Whether the stream is in this capture still. Its address may be that of another stream by now,
// with a capture of its own; a broken capture does not say which it is.
bool Capture::still_there() const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  const CUresult answer = driver::ready().cuStreamGetCaptureInfo(as_stream(stream_), &status, &id,
                                                                 nullptr, nullptr, nullptr);
  if (answer != CUDA_SUCCESS) return true;  // the end will say what is wrong
  return status == CU_STREAM_CAPTURE_STATUS_INVALIDATED ||
         (status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id == id_);
}

CapturedParts Capture::end() {
  auto& all = OpenCaptures::instance();
  if (!all.is_open(*this)) {
    throw Error(ErrorKind::kInvalidState,
                "this capture is over: it was ended or thrown away before, or the thread that "
                "began it has ended");
  }
  if (generation_ != driver::fork_generation()) driver::throw_if_blocked();
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
  all.close(*this);
  CapturedParts parts = all.take_parts(*this);
  parts.clock = clock_;
  if (attached_) return parts;
  const Table& table = driver::ready();
  const driver::CurrentContext current(table, static_cast<CUcontext>(context_));
  if (!clock_->check_alive() || !still_there()) {
    throw Error(ErrorKind::kInvalidState,
                "the capture on stream " + std::to_string(stream_) +
                    " is gone: the stream or its context was destroyed, or somebody else ended the "
                    "capture");
  }
  CUgraph graph = nullptr;
  check(end_for_sure(table, stream_, graph), "cuStreamEndCapture");
  parts.graph = graph;
  return parts;
}

void Capture::abort() noexcept {
  auto& all = OpenCaptures::instance();
  if (!all.close(*this)) return;
  try {
    const CapturedParts parts = all.take_parts(*this);  // its events go after the capture
    if (attached_ || generation_ != driver::fork_generation()) return;
    if (driver::blocked.load(std::memory_order_relaxed) != 0) return;
    const Table& table = driver::ready();
    if (!clock_->check_alive()) return;
    const driver::CurrentContext current(table, static_cast<CUcontext>(context_));
    CUgraph graph = nullptr;
    if (still_there() && end_for_sure(table, stream_, graph) == CUDA_SUCCESS) {
      table.cuGraphDestroy(graph);
    }
  } catch (...) {  // the driver is gone, or the context: and with it the capture
  }
}

void Capture::look() noexcept {
  if (driver::blocked.load(std::memory_order_relaxed) != 0) return;
  if (generation_ != driver::fork_generation() || !clock_->check_alive()) return;
  try {
    const Table& table = driver::ready();
    const driver::CurrentContext current(table, static_cast<CUcontext>(context_));
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    CUgraph graph = nullptr;
    const CUgraphNode* newest = nullptr;
    std::size_t newest_count = 0;
    if (table.cuStreamGetCaptureInfo(as_stream(stream_), &status, &id, &graph, &newest,
                                     &newest_count) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_ACTIVE || id != id_) {
      return;
    }
    CaptureProgress seen = sights();
    if (table.cuGraphGetNodes(graph, nullptr, &seen.nodes) != CUDA_SUCCESS) return;
    std::string kernel = newest_count > 0 ? kernel_of(table, newest[newest_count - 1]) : "";
    if (kernel.empty() && seen.nodes > 0) kernel = newest_kernel(table, graph, seen.nodes);
    if (!kernel.empty()) seen.last_kernel = std::move(kernel);
    seen.looked = true;
    OpenCaptures::instance().set_sights(*this, std::move(seen));
  } catch (...) {  // out of memory, or the driver is gone: nothing was seen
  }
}

CaptureStatus Capture::status() {
  if (!open()) return CaptureStatus::kNone;
  if (generation_ != driver::fork_generation()) driver::throw_if_blocked();
  look();
  const Table& table = driver::ready();
  if (!clock_->check_alive()) return CaptureStatus::kNone;
  const driver::CurrentContext current(table, static_cast<CUcontext>(context_));
  return still_there() ? ask(table, stream_) : CaptureStatus::kNone;
}

bool Capture::open() const noexcept { return OpenCaptures::instance().is_open(*this); }

CaptureProgress Capture::sights() const { return OpenCaptures::instance().sights(*this); }

std::vector<driver::LogLine> Capture::log() const { return driver::log_since(log_from_); }

void discard_graph(void* graph) noexcept {
  const Table* table = driver::loaded_or_null();
  if (graph == nullptr || table == nullptr) return;
  if (driver::blocked.load(std::memory_order_relaxed) != 0) return;
  const driver::RelaxedCapture relaxed(*table);
  table->cuGraphDestroy(as_graph(graph));
}

CaptureStatus status_of(std::uintptr_t stream, int ordinal) {
  const Table& table = driver::ready();
  const driver::CurrentContext current(table, context_for(table, stream, ordinal));
  return ask(table, stream);
}

StreamCapture capture_of(std::uintptr_t stream, int ordinal) {
  const Table& table = driver::ready();
  const driver::CurrentContext current(table, context_for(table, stream, ordinal));
  StreamCapture result;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  cuuint64_t id = 0;
  check(table.cuStreamGetCaptureInfo(as_stream(stream), &status, &id, &graph, nullptr, nullptr),
        "cuStreamGetCaptureInfo");
  result.status = status_from(status);
  if (result.status == CaptureStatus::kActive) {
    result.id = id;
    check(table.cuGraphGetNodes(graph, nullptr, &result.nodes), "cuGraphGetNodes");
  }
  return result;
}

int drop_capture(std::uintptr_t stream) {
  const Table& table = driver::ready();
  CUgraph graph = nullptr;
  const CUresult status = end_for_sure(table, stream, graph);
  if (status == CUDA_SUCCESS && graph != nullptr) table.cuGraphDestroy(graph);
  return static_cast<int>(status);
}

void begin_bare_capture(std::uintptr_t stream) {
  check(
      driver::ready().cuStreamBeginCapture(as_stream(stream), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
      "cuStreamBeginCapture");
}

CaptureMode exchange_thread_mode(CaptureMode mode) {
  const Table& table = driver::ready();
  const CUstreamCaptureMode wanted = driver_mode(mode);
  CUstreamCaptureMode exchanged = wanted;
  const CUresult status = table.cuThreadExchangeStreamCaptureMode(&exchanged);
  if (status != CUDA_SUCCESS) {
    const Error error = driver::error_of(status, "cuThreadExchangeStreamCaptureMode");
    // It has told the mode before: it may have set the other one all the same.
    if (exchanged != wanted) table.cuThreadExchangeStreamCaptureMode(&exchanged);
    throw error;
  }
  return static_cast<CaptureMode>(exchanged);
}

RelaxedThread::RelaxedThread() noexcept {
  try {
    if (driver::loaded_or_null() != nullptr) before_ = exchange_thread_mode(CaptureMode::kRelaxed);
  } catch (...) {  // no driver to be afraid of any more
  }
}

// Tried again, because a thread that is left in relaxed mode has no protection.
RelaxedThread::~RelaxedThread() {
  if (before_ == CaptureMode::kRelaxed) return;
  for (int tries = 0; tries < 2; ++tries) {
    try {
      exchange_thread_mode(before_);
      return;
    } catch (...) {
    }
  }
}

}  // namespace gpuprof::graphs
