/// @file
/// A captured CUDA graph: launched, updated, looked into.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpuprof/capture_pool.hpp"
#include "gpuprof/error.hpp"
#include "gpuprof/graph_types.hpp"
#include "gpuprof/nodes.hpp"
#include "gpuprof/stream.hpp"

// What the driver's handles point to.
struct CUgraph_st;
struct CUgraphExec_st;

GPUPROF_BEGIN_NAMESPACE

/// A graph cannot be updated in place; the text says why and at which node.
class __attribute__((visibility("default"))) GraphUpdateError : public Error {
 public:
  explicit GraphUpdateError(const std::string& message)
      : Error(ErrorKind::kInvalidState, message) {}
};

/// What the scopes of one path took in the last replay.
struct SpanTiming {
  std::vector<std::string> names;  ///< of the path, outermost first
  std::string path;                ///< the names joined by '/'
  /// Milliseconds, one for each time that the scope was entered in the capture, in that order;
  /// empty where the replay has not come that far.
  std::vector<std::optional<double>> values;

  /// How often the scope is in the graph.
  [[nodiscard]] std::size_t count() const noexcept { return values.size(); }
  /// The sum and the mean of the known values in milliseconds; nan if none is known.
  [[nodiscard]] double ms() const noexcept;
  [[nodiscard]] double mean() const noexcept;
};

/// The last replay's times by path, in the order in which the scopes were captured.
class GraphTimings {
 public:
  explicit GraphTimings(std::vector<SpanTiming> rows) : rows_(std::move(rows)) {}

  [[nodiscard]] const std::vector<SpanTiming>& rows() const noexcept { return rows_; }
  [[nodiscard]] std::size_t size() const noexcept { return rows_.size(); }
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }
  [[nodiscard]] auto begin() const noexcept { return rows_.begin(); }
  [[nodiscard]] auto end() const noexcept { return rows_.end(); }

  /// The first row with this path, or null.
  [[nodiscard]] const SpanTiming* find(std::string_view path) const noexcept;
  /// The same.
  /// @throws std::out_of_range there is none; the text lists the paths that there are
  [[nodiscard]] const SpanTiming& at(std::string_view path) const;

  /// A table: span, count, ms, mean.
  [[nodiscard]] std::string to_string() const;

 private:
  std::vector<SpanTiming> rows_;
};

/// A captured CUDA graph. Made by Capture::finish().
///
/// Owns what it needs: its pool, what Capture::keep was given, the events of the scopes inside.
/// They are released when it is closed and its last replay is over, by whichever later call of
/// gpuprof on a graph finds that out. Moves; a graph that was moved from can be assigned to and
/// destroyed. Any thread may use it: its calls are serialised.
class CapturedGraph {
 public:
  CapturedGraph(CapturedGraph&&) noexcept;
  CapturedGraph& operator=(CapturedGraph&&) noexcept;
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  /// Closes it.
  ~CapturedGraph();

  /// Replays the graph once, without waiting.
  /// @param stream without it, the stream of the capture
  /// @throws Error the graph is closed, the stream is being captured, or the driver refused
  void launch(Stream stream);
  void launch();

  /// Copies the graph to the device, so that the first launch is as cheap as later ones. A launch
  /// does it too. Idempotent; does not wait.
  void upload(Stream stream);
  void upload();
  [[nodiscard]] bool is_uploaded() const;

  /// How often the graph was launched.
  [[nodiscard]] std::uint64_t num_replays() const;
  /// The name that it was given, or an empty text.
  [[nodiscard]] const std::string& name() const;
  /// The index of the device that the graph is on.
  [[nodiscard]] int device() const;
  /// The pool that its buffers are in, if it was captured with one.
  [[nodiscard]] std::optional<CapturePool> pool() const;

  /// The nodes, in the driver's order.
  [[nodiscard]] std::vector<GraphNode> nodes() const;
  /// How many nodes the graph has; those of child graphs are not counted.
  [[nodiscard]] std::size_t num_nodes() const;
  /// Pairs of indices into nodes(): the first must be done before the second begins.
  [[nodiscard]] std::vector<std::pair<std::size_t, std::size_t>> edges() const;
  /// The names of the kernels in the order in which they can run.
  [[nodiscard]] std::vector<std::string> kernel_names() const;
  /// The graph in the language of Graphviz: `dot -Tsvg` draws it.
  [[nodiscard]] std::string to_dot() const;

  /// Replaces what this graph does by what `other` does, without a new instantiation.
  ///
  /// The two must have the same nodes in the same order; their parameters may differ. This graph
  /// then keeps alive what `other` does, and its pool; its own are released once the launches so
  /// far are over. `other` may be closed afterwards. With GraphTimers::kLast the launches of both
  /// write the same events from then on.
  /// @throws GraphUpdateError they do not fit; this graph is as it was
  void update(CapturedGraph& other);

  /// The device memory that the graph takes. The first call makes a second executable copy, to
  /// measure it.
  [[nodiscard]] GraphMemory memory() const;

  /// What the scopes inside the graph took in its last replay.
  /// @param wait waits for the replay; without it, what is not known yet is empty
  /// @throws Error ErrorKind::kNotReplayed: there are scopes and no launch yet
  [[nodiscard]] GraphTimings timings(bool wait = true) const;

  /// The driver's handles. They belong to this object.
  [[nodiscard]] CUgraph_st* raw_graph() const;
  [[nodiscard]] CUgraphExec_st* raw_exec() const;

  /// Destroys the graph. Idempotent, never throws, also while a replay runs.
  void close() noexcept;
  [[nodiscard]] bool closed() const noexcept;

 private:
  friend class Capture;
  struct State;
  explicit CapturedGraph(std::unique_ptr<State> state) noexcept;
  [[nodiscard]] State& open() const;

  std::unique_ptr<State> state_;
};

GPUPROF_END_NAMESPACE
