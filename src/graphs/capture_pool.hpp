// What captured graphs need for as long as they are replayed, and a seal against new captures.
//
// Make it with std::make_shared. Whoever holds the pool keeps its buffers: its user, and the graphs
// captured with it until they are closed and their last replay is over. Buffers are dropped in the
// order in which they were recorded, without the pool's lock, so that a buffer's destructor may use
// the pool. Any thread. Calls no driver.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace gpuprof::graphs {

class DeviceScalar;
class LaunchOrder;

class CapturePool {
 public:
  // Something that graphs use. `scalar` is set where it is one: launches wait for its updates.
  struct Buffer {
    std::shared_ptr<const void> what;
    std::shared_ptr<const DeviceScalar> scalar;
  };

  CapturePool() = default;
  CapturePool(const CapturePool&) = delete;
  CapturePool& operator=(const CapturePool&) = delete;
  ~CapturePool();

  // Keeps a buffer, in a sealed pool too. Returns its index, from 0.
  std::size_t record(Buffer buffer);
  [[nodiscard]] std::size_t buffer_count() const;

  // Drops all buffers. A graph that was captured before compares clears() at its next launch.
  void clear();
  // How often the buffers were dropped.
  [[nodiscard]] std::uint64_t clears() const noexcept {
    return clears_.load(std::memory_order_acquire);
  }

  void seal() noexcept { sealed_.store(true, std::memory_order_release); }
  void unseal() noexcept { sealed_.store(false, std::memory_order_release); }
  [[nodiscard]] bool sealed() const noexcept { return sealed_.load(std::memory_order_acquire); }
  // driver::Error(kInvalidState) where it is sealed: for a capture that is about to begin with it.
  void throw_if_sealed() const;

  // The scalars among the buffers.
  [[nodiscard]] std::vector<std::shared_ptr<const DeviceScalar>> scalars() const;

  // What runs the launches of graphs that share the pool's memory one after the other; the same
  // object each time.
  [[nodiscard]] std::shared_ptr<LaunchOrder> launch_order();

 private:
  static void drop(std::vector<Buffer> buffers) noexcept;

  mutable std::mutex mutex_;  // of what follows
  std::vector<Buffer> buffers_;
  std::shared_ptr<LaunchOrder> order_;
  std::atomic<std::uint64_t> clears_{0};
  std::atomic<bool> sealed_{false};
};

}  // namespace gpuprof::graphs
