#include "graphs/capture_pool.hpp"

#include <utility>

#include "driver/error.hpp"
#include "graphs/captured_graph.hpp"

namespace gpuprof::graphs {

CapturePool::~CapturePool() { drop(std::move(buffers_)); }

std::size_t CapturePool::record(Buffer buffer) {
  const std::lock_guard lock(mutex_);
  buffers_.push_back(std::move(buffer));
  return buffers_.size() - 1;
}

std::size_t CapturePool::buffer_count() const {
  const std::lock_guard lock(mutex_);
  return buffers_.size();
}

void CapturePool::clear() {
  std::vector<Buffer> dropped;
  {
    const std::lock_guard lock(mutex_);
    dropped.swap(buffers_);
    clears_.fetch_add(1, std::memory_order_release);
  }
  drop(std::move(dropped));
}

// A vector does not promise the order in which it destroys its elements.
void CapturePool::drop(std::vector<Buffer> buffers) noexcept {
  for (Buffer& buffer : buffers) buffer = {};
}

void CapturePool::throw_if_sealed() const {
  if (!sealed()) return;
  throw driver::Error(
      driver::ErrorKind::kInvalidState,
      "pool: it is sealed, so that nothing more is captured with it; unseal() it first");
}

std::vector<std::shared_ptr<const DeviceScalar>> CapturePool::scalars() const {
  std::vector<std::shared_ptr<const DeviceScalar>> found;
  const std::lock_guard lock(mutex_);
  for (const Buffer& buffer : buffers_) {
    if (buffer.scalar) found.push_back(buffer.scalar);
  }
  return found;
}

std::shared_ptr<LaunchOrder> CapturePool::launch_order() {
  const std::lock_guard lock(mutex_);
  if (!order_) order_ = std::make_shared<LaunchOrder>();
  return order_;
}

}  // namespace gpuprof::graphs
