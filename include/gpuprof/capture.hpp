/// @file
/// Capturing what a stream is given as a CUDA graph.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpuprof/capture_pool.hpp"
#include "gpuprof/device_scalar.hpp"
#include "gpuprof/error.hpp"
#include "gpuprof/graph.hpp"
#include "gpuprof/graph_types.hpp"
#include "gpuprof/stream.hpp"

GPUPROF_BEGIN_NAMESPACE

/// A stream capture failed or was broken: code() is one of 900 to 908, or what else the driver
/// answered to the end of the capture.
///
/// detail() says which call broke it, where the driver keeps a log (CUDA 12.9 and later), what
/// usually causes that, and what to do.
class __attribute__((visibility("default"))) CaptureError : public Error {
 public:
  CaptureError(int code, std::string name, std::string call, std::string detail)
      : Error(code, std::move(name), std::move(call), std::move(detail)) {}

  std::string capture;                   ///< the name that the capture was given
  CaptureMode mode{};                    ///< its mode
  std::optional<std::size_t> num_nodes;  ///< how many nodes it had when it was last seen
  std::string last_kernel;               ///< the last kernel that it had then; mangled
  std::string first_refused;             ///< the driver call that broke it, as far as the log tells
  std::vector<std::string> log;          ///< what the log said since the capture began
  std::string hint;                      ///< what usually causes this, and what to do
};

/// A capture recorded nothing.
class __attribute__((visibility("default"))) EmptyGraphError : public Error {
 public:
  explicit EmptyGraphError(const std::string& message) : Error(ErrorKind::kInvalidState, message) {}
};

/// How to capture.
struct CaptureOptions {
  /// What the graph is called in errors, statistics and traces.
  std::string name;
  CaptureMode mode = CaptureMode::kThreadLocal;
  /// What `gpuprof::timer` becomes in the capture. An event costs the GPU about 2 microseconds a
  /// replay on an H100.
  GraphTimers timers = GraphTimers::kLast;
  /// Whose buffers the graph needs.
  std::optional<CapturePool> pool;
  /// Launches of the graphs of the pool that have this set run one after the other on the GPU, in
  /// the order of the calls, whatever their streams: for graphs that share memory.
  bool in_pool_order = false;
  /// Accepts a capture that recorded nothing.
  bool allow_empty = false;
  /// Copies the graph to the device at once, so that its first launch is cheap.
  bool upload = false;
};

/// An open capture: work that is queued on the stream from now on becomes a graph.
///
/// It begins at construction. `finish` ends it and returns the graph, `abort` discards it, and so
/// does the destructor of a capture that is open, whether by a return or an exception: the stream
/// and the thread are then as they were before. Neither copies nor moves. Not for several threads
/// at once; the thread that began it must end it, unless the mode is CaptureMode::kRelaxed.
///
///     gpuprof::Capture capture{stream};
///     kernel<<<grid, block, 0, stream>>>(scale.ptr(), data);
///     capture.keep(scale);
///     gpuprof::CapturedGraph graph = capture.finish();
///     graph.launch(stream);
class Capture {
 public:
  /// Begins to capture `stream`, which is not the legacy default stream.
  /// @throws Error there is no driver or no device; the stream is being captured already; the pool
  ///         is sealed
  /// @throws CaptureError the stream cannot be captured
  explicit Capture(Stream stream, CaptureOptions options = {});
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  /// Aborts a capture that is open. Never throws.
  ~Capture();

  /// Keeps something that the graph uses until the graph is closed and its last replay is over. Its
  /// deleter must not throw, and runs on whichever thread finds that out.
  /// @throws Error the capture is over
  void keep(std::shared_ptr<const void> object);
  /// The same for a DeviceScalar: each launch then waits for its last update.
  template <typename T>
  GPUPROF_HIDDEN void keep(const DeviceScalar<T>& scalar) {
    keep_scalar(scalar.memory());
  }

  /// Ends the capture and makes its graph executable.
  /// @throws CaptureError what was queued broke the capture; the text says which call did, where
  ///         the driver knows. With code 908 another thread began it, and it is still open.
  /// @throws EmptyGraphError nothing was captured
  /// @throws Error the capture is over already
  [[nodiscard]] CapturedGraph finish();

  /// Ends the capture and discards what it recorded. Idempotent.
  void abort() noexcept;

  /// Whether the capture is active, broken, or over.
  [[nodiscard]] CaptureStatus status() const;
  [[nodiscard]] bool is_open() const noexcept;
  [[nodiscard]] Stream stream() const noexcept;

 private:
  struct State;
  void keep_scalar(const detail::ScalarMemory& scalar);

  std::unique_ptr<State> state_;
};

/// Whether a stream is being captured, by gpuprof or others.
[[nodiscard]] CaptureStatus capture_status(Stream stream);

/// Whether work that is queued on a stream now becomes part of a graph.
[[nodiscard]] bool is_stream_capturing(Stream stream);

GPUPROF_END_NAMESPACE
