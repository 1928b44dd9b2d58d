// What the public classes of graphs share.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpuprof/capture.hpp"
#include "gpuprof/capture_pool.hpp"
#include "gpuprof/device_scalar.hpp"
#include "gpuprof/graph.hpp"
#include "graphs/capture_pool.hpp"
#include "graphs/captured_graph.hpp"
#include "graphs/device_scalar.hpp"
#include "timing/path.hpp"

GPUPROF_BEGIN_NAMESPACE

namespace detail {

struct ScalarAccess {
  static const std::shared_ptr<graphs::DeviceScalar>& of(const ScalarMemory& memory) noexcept {
    return memory.scalar_;
  }
};

struct PoolAccess {
  static const std::shared_ptr<graphs::CapturePool>& of(const CapturePool& pool) noexcept {
    return pool.pool_;
  }
  static CapturePool of(std::shared_ptr<graphs::CapturePool> pool) {
    return CapturePool(std::move(pool));
  }
};

}  // namespace detail

using Scalars = std::vector<std::shared_ptr<const graphs::DeviceScalar>>;
using KeptObjects = std::vector<std::shared_ptr<const void>>;

// What a graph needs as long as it is replayed.
struct Needs {
  std::shared_ptr<graphs::CapturePool> pool;
  KeptObjects objects;
  Scalars scalars;

  // All of it, in the order in which it is dropped.
  [[nodiscard]] KeptObjects all() const;
};

struct CapturedGraph::State {
  State(graphs::CapturedParts parts, std::uintptr_t of_stream, GraphTimers timers,
        std::string graph_name);

  // What `wanted` says, from now on. Before the first launch.
  void own(Needs wanted);
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
