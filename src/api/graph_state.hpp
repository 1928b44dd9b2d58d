// What the public classes of graphs share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpuprof/capture.hpp"
#include "gpuprof/capture_pool.hpp"
#include "gpuprof/device_scalar.hpp"
#include "gpuprof/graph.hpp"
#include "graphs/captured_graph.hpp"
#include "graphs/device_scalar.hpp"
#include "timing/path.hpp"

// What a graph needs until its last launch is over.
//
// What finds that out may hold a graph's lock, or be inside another thread's call. So it only puts
// the bundle on a list, and the objects are let go by the next drain_kept_objects(): every call
// that makes, launches or closes a graph comes by.
namespace gpuprof::api {

// A payload for CapturedGraph::retain() that keeps these objects; no payload for none of them. They
// are dropped in their order.
[[nodiscard]] graphs::Payload keep_objects(std::vector<std::shared_ptr<const void>> objects);

// Looks which replays are over, and lets go of what was released, the earliest first. Cheap where
// there is nothing. Runs deleters of any kind, without a lock, with this thread in relaxed capture
// mode.
void drain_kept_objects() noexcept;

}  // namespace gpuprof::api

GPUPROF_BEGIN_NAMESPACE

using Scalars = std::vector<std::shared_ptr<const graphs::DeviceScalar>>;

namespace detail {

struct ScalarAccess {
  static const std::shared_ptr<graphs::DeviceScalar>& of(const ScalarMemory& memory) noexcept {
    return memory.scalar_;
  }
};

// What the copies of a CapturePool and the graphs captured with it share. Buffers are dropped in
// the order in which they were recorded, without the lock, so that a buffer's destructor may use
// the pool.
struct PoolState {
  // `scalar` is set where the buffer is one: launches wait for its updates.
  struct Buffer {
    std::shared_ptr<const void> what;
    std::shared_ptr<const graphs::DeviceScalar> scalar;
  };

  ~PoolState() { clear(); }
  std::size_t record(Buffer buffer);
  void clear();
  [[nodiscard]] Scalars scalars();
  // The same object each time.
  std::shared_ptr<graphs::LaunchOrder> launch_order();

  std::mutex mutex;  // of what follows
  std::vector<Buffer> buffers;
  std::shared_ptr<graphs::LaunchOrder> order;
  std::atomic<std::uint64_t> clears{0};  // a graph compares it at its next launch
  std::atomic<bool> sealed{false};
};

struct PoolAccess {
  static const std::shared_ptr<PoolState>& of(const CapturePool& pool) noexcept {
    return pool.pool_;
  }
  static CapturePool of(std::shared_ptr<PoolState> pool) { return CapturePool(std::move(pool)); }
};

}  // namespace detail

using KeptObjects = std::vector<std::shared_ptr<const void>>;

// What a graph needs as long as it is replayed.
struct Needs {
  std::shared_ptr<detail::PoolState> pool;
  KeptObjects objects;
  Scalars scalars;

  // All of it, in the order in which it is dropped.
  [[nodiscard]] KeptObjects all() const;
};

struct CapturedGraph::State {
  State(graphs::CapturedParts parts, std::uintptr_t of_stream, GraphTimers timers,
        std::string graph_name, Needs&& its_needs);
  void launch(std::uintptr_t on);

  const std::string name;
  const std::uintptr_t stream;  // of the capture
  graphs::CapturedGraph graph;

  std::mutex mutex;  // of what follows; held over no driver call
  Needs needs;
  std::uint64_t seen_clears = 0;  // of the pool's, when it was captured or last warned of
  timing::PathCache path;         // of a launch, below the scopes that are open
};

GPUPROF_END_NAMESPACE
