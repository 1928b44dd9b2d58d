#include "gpuprof/capture.hpp"

#include <mutex>
#include <utility>

#include "api/graph_state.hpp"
#include "driver/devices.hpp"
#include "graphs/capture.hpp"
#include "graphs/diagnosis.hpp"
#include "text/graph_text.hpp"
#include "text/kernel_name.hpp"
#include "timing/thread_nesting.hpp"

GPUPROF_BEGIN_NAMESPACE
namespace {

constexpr int kLogsSince = 12090;  // the driver that keeps a log of what it refuses

constexpr const char* kModeNames[] = {"global", "thread_local", "relaxed"};

std::shared_ptr<graphs::Capture> begin_on(Stream stream, const CaptureOptions& options) {
  static std::once_flag owned;
  std::call_once(owned, &graphs::own_captured_scopes);
  api::drain_kept_objects();
  try {
    return graphs::Capture::begin(
        stream.handle(), /*ordinal=*/0,
        {options.mode, options.timers, timing::ThreadNesting::here().path});
  } catch (const Error& error) {
    if (*graphs::capture_text(error.code()) == '\0') throw;  // it is not of a capture
    throw CaptureError(error.code(), error.name(), error.call(), error.detail());
  }
}

}  // namespace

struct Capture::State {
  std::shared_ptr<graphs::Capture> capture;
  CaptureOptions options;
  Needs needs;
  const char* over = nullptr;  // why there is nothing to finish

  void throw_if_over() const {
    if (over == nullptr) return;
    driver::refuse("this capture " + std::string(over) + "; there is nothing to finish");
  }

  // The error of an end that failed, with all that is known of the capture.
  [[nodiscard]] CaptureError explained(const Error& error) const {
    const graphs::CaptureProgress seen = capture->progress();
    graphs::CaptureFacts facts;
    if (!options.name.empty()) facts.name = graph_text::quoted(options.name);
    facts.stream = capture->stream();
    facts.mode = kModeNames[static_cast<std::size_t>(options.mode)];
    facts.nodes = seen.nodes;
    facts.last_kernel = graph_text::short_name(graph_text::demangled(seen.last_kernel));
    facts.keeps_log = driver::driver_version() >= kLogsSince;
    facts.log = capture->log();
    const graphs::Diagnosis found =
        graphs::diagnose(error.code(), error.call(), error.detail(), facts);
    const bool same = found.code == error.code();
    CaptureError result(found.code, same ? error.name() : graphs::capture_error_name(found.code),
                        error.call(), found.text);
    result.capture = options.name;
    result.mode = options.mode;
    result.num_nodes = facts.nodes;
    result.last_kernel = seen.last_kernel;
    result.first_refused = found.first_refused;
    result.hint = found.hint;
    for (const driver::LogLine& line : facts.log) {
      result.log.push_back(line.own ? line.text : "another thread: " + line.text);
    }
    return result;
  }

  graphs::CapturedParts end() {
    try {
      graphs::CapturedParts parts = capture->end();
      over = "is finished";
      return parts;
    } catch (const Error& error) {
      if (capture->open()) {  // another thread began it
        throw CaptureError(error.code(), error.name(), error.call(), error.detail());
      }
      over = "failed";
      if (error.kind() != ErrorKind::kCuda) throw;
      throw explained(error);
    }
  }

  void throw_if_empty() const {
    if (options.allow_empty || capture->progress().nodes != 0U) return;
    const std::string what =
        options.name.empty() ? "the capture" : "capture " + graph_text::quoted(options.name);
    throw EmptyGraphError(what + " on stream " + std::to_string(capture->stream()) +
                          " recorded nothing: the work ran on another stream, or there was none; "
                          "capture that stream, or set CaptureOptions::allow_empty");
  }
};

Capture::Capture(Stream stream, CaptureOptions options) : state_(std::make_unique<State>()) {
  if (options.pool) {
    state_->needs.pool = detail::PoolAccess::of(*options.pool);
    if (options.pool->is_sealed()) {
      driver::refuse(
          "pool: it is sealed, so that nothing more is captured with it; unseal() it first");
    }
  } else if (options.in_pool_order) {
    driver::refuse(
        "in_pool_order: there is no pool to order launches in; set CaptureOptions::pool "
        "too");
  }
  state_->options = std::move(options);
  state_->capture = begin_on(stream, state_->options);
}

Capture::~Capture() { abort(); }

void Capture::keep(std::shared_ptr<const void> object) {
  state_->throw_if_over();
  state_->needs.objects.push_back(std::move(object));
}

void Capture::keep_scalar(const detail::ScalarMemory& scalar) {
  state_->throw_if_over();
  state_->needs.scalars.push_back(detail::ScalarAccess::of(scalar));
}

CapturedGraph Capture::finish() {
  State& state = *state_;
  state.throw_if_over();
  graphs::CapturedParts parts = state.end();
  state.throw_if_empty();
  auto graph = std::make_unique<CapturedGraph::State>(std::move(parts), state.capture->stream(),
                                                      state.options.timers, state.options.name,
                                                      std::move(state.needs));
  if (state.options.in_pool_order) graph->graph.set_launch_order(graph->needs.pool->launch_order());
  graph->graph.instantiate();
  if (state.options.upload) graph->graph.upload(graph->stream);
  return CapturedGraph(std::move(graph));
}

void Capture::abort() noexcept {
  if (state_->over != nullptr || !state_->capture) return;
  state_->over = "was aborted";
  state_->capture->abort();
}

CaptureStatus Capture::status() const {
  return state_->over == nullptr ? state_->capture->status() : CaptureStatus::kNone;
}

bool Capture::is_open() const noexcept {
  return state_->over == nullptr && state_->capture->open();
}

Stream Capture::stream() const noexcept { return Stream::from_handle(state_->capture->stream()); }

CaptureStatus capture_status(Stream stream) { return graphs::status_of(stream.handle(), 0); }

bool is_stream_capturing(Stream stream) { return capture_status(stream) == CaptureStatus::kActive; }

GPUPROF_END_NAMESPACE
