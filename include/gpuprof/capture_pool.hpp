/// @file
/// What captured graphs need for as long as they are replayed.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "gpuprof/version.hpp"

GPUPROF_BEGIN_NAMESPACE

namespace detail {
class ScalarMemory;
struct PoolAccess;
struct PoolState;
}  // namespace detail

/// Objects that graphs need for as long as they are replayed, and a seal against new captures.
///
/// A handle: copies name the same pool. What `record_buffer` is given lives until the last owner of
/// the pool is gone: its handles, and the graphs captured with it (CaptureOptions::pool) until they
/// are closed and their last replay is over. Buffers are dropped in the order in which they were
/// recorded. Works without CUDA. Any thread.
///
/// Graphs that share memory give right results only if they are replayed one after the other:
/// CaptureOptions::in_pool_order sees to that.
class CapturePool {
 public:
  /// A new, empty pool.
  CapturePool();
  CapturePool(const CapturePool&) = default;
  CapturePool& operator=(const CapturePool&) = default;
  ~CapturePool() = default;

  /// Keeps `buffer` until the last owner of the pool is gone. Works on a sealed pool too. Its
  /// deleter must not throw, and runs on whichever thread lets go of the pool.
  /// @return its index, from 0
  std::size_t record_buffer(std::shared_ptr<const void> buffer);
  /// The same for a DeviceScalar: launches of graphs captured with the pool from now on wait for
  /// its last update.
  template <typename Scalar, typename = decltype(std::declval<const Scalar&>().memory())>
  GPUPROF_HIDDEN std::size_t record_buffer(const Scalar& scalar) {
    return record_scalar(scalar.memory());
  }

  /// How many buffers the pool keeps.
  [[nodiscard]] std::size_t buffer_count() const;

  /// Drops all buffers, in the order in which they were recorded. Allowed while graphs live that
  /// were captured with the pool: their later launches warn once.
  void clear_buffers();

  /// Refuses new captures with this pool, and allows them again. Idempotent.
  void seal() noexcept;
  void unseal() noexcept;
  [[nodiscard]] bool is_sealed() const noexcept;

  friend bool operator==(const CapturePool& a, const CapturePool& b) noexcept {
    return a.pool_ == b.pool_;
  }
  friend bool operator!=(const CapturePool& a, const CapturePool& b) noexcept { return !(a == b); }

 private:
  friend struct detail::PoolAccess;
  explicit CapturePool(std::shared_ptr<detail::PoolState> pool) noexcept : pool_(std::move(pool)) {}
  std::size_t record_scalar(const detail::ScalarMemory& scalar);

  std::shared_ptr<detail::PoolState> pool_;
};

GPUPROF_END_NAMESPACE
