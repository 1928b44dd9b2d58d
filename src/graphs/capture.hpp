// One stream capture, from begin to end.
//
// A Capture is open from its making until end() or abort(), and ends its capture by itself when it
// is destroyed, when the thread that began it ends, and never in a forked child. Whatever happens,
// the stream can be used afterwards. It also notes what it sees on the way, because the driver
// tells nothing of a broken capture, and owns the spans that scopes record into it.
//
// Streams are CUDA stream handles as integers; the caller keeps the stream alive. Any thread may
// look, and record spans; begin, end and abort need the caller's order. Errors are driver::Error.
// Its own calls break nobody's capture.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "driver/cuda_error_log.hpp"
#include "timing/sample.hpp"

namespace gpuprof::graphs {

// Which calls, on which threads, break a capture; the values are the driver's.
enum class CaptureMode : std::uint8_t { kGlobal, kThreadLocal, kRelaxed };

enum class CaptureStatus : std::uint8_t { kNone, kActive, kInvalidated };

// What scopes inside a capture become.
enum class GraphTimers : std::uint8_t {
  kLast,     // event nodes that each replay overwrites
  kCollect,  // event nodes whose times are collected replay by replay
  kStrip,    // nothing
};

struct CaptureOptions {
  CaptureMode mode = CaptureMode::kThreadLocal;
  GraphTimers timers = GraphTimers::kLast;
};

// What was seen of a capture while it was active.
struct CaptureProgress {
  bool looked = false;  // else nothing was seen
  std::size_t nodes = 0;
  std::string last_kernel;  // mangled; empty where none of the newest nodes is a kernel
};

// Every pair of events that scopes and timers have made nodes of a graph.
using EventsInGraph = std::vector<std::shared_ptr<const timing::GraphEvents>>;

// What end() gives: the graph, which is the caller's, its events and the whole spans among them.
struct CapturedParts {
  void* graph = nullptr;
  EventsInGraph events;
  std::vector<timing::SampleRef> timers;
  timing::EventClock* clock = nullptr;  // of the context that was captured
};

// Destroys a graph that nobody took over. Never throws; breaks nobody's capture.
void discard_graph(void* graph) noexcept;

class Capture {
 public:
  // Begins a capture on `stream`. Refused before the driver is called: the legacy default stream
  // (error 900) and a stream that is being captured already (kInvalidState). `ordinal` is the
  // device of a default stream on a thread without a context.
  static std::shared_ptr<Capture> begin(std::uintptr_t stream, int ordinal,
                                        const CaptureOptions& options);

  // Takes part in a capture that a framework has begun on `stream` and will end.
  static std::shared_ptr<Capture> attach(std::uintptr_t stream, const CaptureOptions& options);

  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() { abort(); }

  // Ends the capture. It is over afterwards, also where this throws, except for a call on another
  // thread than the one that began it: that is refused (error 908) and the capture stays open.
  // For an attached capture: to be called before the framework ends it; gives no graph.
  CapturedParts end();

  // Ends the capture and throws it away. For an attached capture: only forgets it. Never throws.
  // On another thread than the beginning one it is ended all the same.
  void abort() noexcept;

  // Counts the nodes and names the newest, if the capture is active.
  void look() noexcept;

  [[nodiscard]] CaptureStatus status();
  [[nodiscard]] bool open() const noexcept;
  [[nodiscard]] bool attached() const noexcept { return attached_; }
  [[nodiscard]] std::uintptr_t stream() const noexcept { return stream_; }
  [[nodiscard]] unsigned long long id() const noexcept { return id_; }
  [[nodiscard]] const CaptureOptions& options() const noexcept { return options_; }
  [[nodiscard]] std::uint64_t thread() const noexcept { return thread_; }
  [[nodiscard]] CaptureProgress sights() const;
  // What the driver's log says since the capture began.
  [[nodiscard]] std::vector<driver::LogLine> log() const;

 private:
  friend struct OpenCaptures;
  Capture(std::uintptr_t stream, const CaptureOptions& options, bool attached);

  void started();
  [[nodiscard]] bool still_there() const;

  const std::uintptr_t stream_;
  const CaptureOptions options_;
  const bool attached_;
  const std::uint64_t thread_;      // as the driver's log writes it
  const std::uint32_t generation_;  // of the process
  unsigned long long id_ = 0;
  void* context_ = nullptr;              // to be current for calls on a default stream
  timing::EventClock* clock_ = nullptr;  // of the stream's context; lives as long as the process
  driver::LogPosition log_from_ = 0;
  // Under the lock of the open captures:
  bool open_ = false;
  CaptureProgress sights_;
  std::vector<timing::SampleRef> timers_;
  EventsInGraph events_;
};

// What the driver says of any stream.
struct StreamCapture {
  CaptureStatus status = CaptureStatus::kNone;
  unsigned long long id = 0;
  std::size_t nodes = 0;
};
StreamCapture capture_of(std::uintptr_t stream, int ordinal);

// The status alone: one driver call.
CaptureStatus status_of(std::uintptr_t stream, int ordinal);

// Ends whatever capture the stream is in and throws its graph away. Returns the driver's answer to
// the end, 0 for a capture that was whole. For the clean-up of a framework's capture.
int drop_capture(std::uintptr_t stream);

// Begins a capture that nothing is noted of, for a framework that has to end one.
void begin_bare_capture(std::uintptr_t stream);

// The open capture of gpuprof's with the driver's number `id`, or null.
std::shared_ptr<Capture> find_open(unsigned long long id) noexcept;

// All open captures of this process that gpuprof began or takes part in.
std::vector<std::shared_ptr<Capture>> open_captures();

// Makes scopes inside these captures theirs. Called once.
void own_captured_scopes() noexcept;

// Sets this thread's capture mode and returns the one before. Throws driver::Error.
CaptureMode exchange_thread_mode(CaptureMode mode);

// Lets this thread destroy what others made, for a block, without breaking an open capture. For the
// stack of one function; never throws, and does nothing without a driver.
class RelaxedThread {
 public:
  RelaxedThread() noexcept;
  RelaxedThread(const RelaxedThread&) = delete;
  RelaxedThread& operator=(const RelaxedThread&) = delete;
  ~RelaxedThread();

 private:
  CaptureMode before_ = CaptureMode::kRelaxed;
};

}  // namespace gpuprof::graphs
