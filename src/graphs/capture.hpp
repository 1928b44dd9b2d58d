// One stream capture, from begin to end.
//
// A Capture is open from begin() until end() or abort(). It also ends when it is destroyed and when
// the thread that began it ends, but never in a forked child. Whatever happens, the stream is
// usable afterwards. While it is open it records its progress, because the driver says nothing
// about a broken capture, and owns the spans that scopes record into it.
//
// Streams are CUDA stream handles as integers, kept alive by the caller. Any thread may ask for
// progress and record spans; the caller orders begin, end and abort. Errors are driver::Error. None
// of the calls breaks another capture.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "driver/cuda_error_log.hpp"
#include "gpuprof/graph_types.hpp"
#include "graphs/scope_labels.hpp"
#include "timing/sample.hpp"

namespace gpuprof::graphs {

using gpuprof::CaptureMode;
using gpuprof::CaptureStatus;
using gpuprof::GraphTimers;

struct CaptureOptions {
  CaptureMode mode = CaptureMode::kThreadLocal;
  GraphTimers timers = GraphTimers::kLast;
  const timing::Path* scopes = nullptr;  // open on this thread as the capture begins; null: none
};

// How far a capture had come when it was last seen active.
struct CaptureProgress {
  std::optional<std::size_t> nodes;  // empty: it was never seen
  std::string last_kernel;           // mangled; empty where none of the newest nodes is a kernel
};

// gpuprof's events that are recorded or waited for by nodes of a graph; one may be there twice.
using EventsInGraph = std::vector<std::shared_ptr<const timing::OwnEvent>>;

// Destroys a graph, unless it is borrowed or the parent process's. Breaks no capture.
struct DiscardGraph {
  bool is_borrowed = false;
  void operator()(void* graph) const noexcept;
};

// What end() returns: the graph, its events, the complete spans, and which scope each node is in.
struct CapturedParts {
  EventsInGraph events;
  std::vector<timing::SampleRef> timers;
  NodeLabels labels;
  timing::EventClock* clock = nullptr;        // of the context that was captured
  std::unique_ptr<void, DiscardGraph> graph;  // last, to be destroyed before its events
};

class Capture {
 public:
  // Begins a capture on `stream`. Refuses, without calling the driver, the legacy default stream
  // (error 900) and a stream that is being captured (kInvalidState). `ordinal` is the device of a
  // default stream on a thread without a context.
  static std::shared_ptr<Capture> begin(std::uintptr_t stream, int ordinal,
                                        const CaptureOptions& options);

  // Joins a capture that a framework began on `stream` and will end.
  static std::shared_ptr<Capture> attach(std::uintptr_t stream, const CaptureOptions& options);

  ~Capture() { abort(); }

  // Ends the capture. It is over afterwards, also where this throws, except on another thread than
  // the one that began it: that is refused (error 908) and the capture stays open. Call it on an
  // attached capture before the framework ends it; there is no graph then.
  CapturedParts end();

  // Ends the capture and discards it, on any thread. Only forgets an attached capture. Never
  // throws.
  void abort() noexcept;

  // Updates progress(), if the capture is active.
  void look() noexcept;

  [[nodiscard]] CaptureStatus status();
  [[nodiscard]] bool open() const noexcept;
  [[nodiscard]] bool attached() const noexcept { return attached_; }
  [[nodiscard]] std::uintptr_t stream() const noexcept { return stream_; }
  [[nodiscard]] unsigned long long id() const noexcept { return id_; }
  [[nodiscard]] const CaptureOptions& options() const noexcept { return options_; }
  [[nodiscard]] std::uint64_t thread() const noexcept { return thread_; }
  [[nodiscard]] CaptureProgress progress() const;
  // The lines of the driver's log since the capture began.
  [[nodiscard]] std::vector<driver::LogLine> log() const { return driver::log_since(log_from_); }

  // Keep an event of nodes, and a span whose two events are nodes.
  void add_event(const std::shared_ptr<const timing::OwnEvent>& event);
  void add_timer(timing::Sample& sample);

  // Notes a scope that is entered or left on `stream`, if that is in this capture. Nodes whose
  // scopes could not be noted have the label of the scope around them.
  void note_scope(const timing::Sample& sample, std::uintptr_t stream, bool is_entered) noexcept;

 private:
  Capture(std::uintptr_t stream, const CaptureOptions& options, bool attached);

  static void open(const std::shared_ptr<Capture>& capture);
  bool close(CapturedParts& parts) noexcept;
  void read_id();
  [[nodiscard]] bool still_there() const;
  void* locate(std::uintptr_t stream, CapturePosition& at) const;
  [[nodiscard]] NodeLabels label_nodes() noexcept;

  const std::uintptr_t stream_;
  const CaptureOptions options_;
  const bool attached_;
  const std::uint64_t thread_;  // as the driver's log writes it
  unsigned long long id_ = 0;
  timing::EventClock* clock_ = nullptr;  // of the stream's context; lives as long as the process
  driver::LogPosition log_from_ = 0;
  // Under the lock of the open captures:
  bool open_ = false;
  CaptureProgress progress_;
  std::vector<timing::SampleRef> timers_;
  EventsInGraph events_;
  // Under a lock of its own, which is held over no driver call and used in no forked child:
  mutable std::mutex labels_mutex_;
  ScopeLabels labels_;
};

// The capture of any stream, as the driver tells it.
struct StreamCapture {
  CaptureStatus status = CaptureStatus::kNone;
  unsigned long long id = 0;
  std::size_t nodes = 0;
  bool works = false;  // whether one of the nodes from number `since` on does: events do no work
};
StreamCapture capture_of(std::uintptr_t stream, int ordinal, std::size_t since = SIZE_MAX);

// The status alone: one driver call.
CaptureStatus status_of(std::uintptr_t stream, int ordinal);

// Ends whatever capture the stream is in and discards its graph: the clean-up of a framework's
// capture. Returns the driver's answer, 0 for an intact capture.
int drop_capture(std::uintptr_t stream);

// Begins a capture without a Capture object, for a framework that has to end one.
void begin_empty_capture(std::uintptr_t stream);

// All open captures of this process that gpuprof began or joined.
std::vector<std::shared_ptr<Capture>> open_captures();

// Lets scopes on a captured stream record into these captures. Called once.
void own_captured_scopes() noexcept;

// Sets this thread's capture mode and returns the one before.
CaptureMode exchange_thread_mode(CaptureMode mode);

}  // namespace gpuprof::graphs
