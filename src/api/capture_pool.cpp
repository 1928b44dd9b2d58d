#include "gpuprof/capture_pool.hpp"

#include "api/graph_state.hpp"

GPUPROF_BEGIN_NAMESPACE
namespace detail {

std::size_t PoolState::record(Buffer buffer) {
  const std::lock_guard lock(mutex);
  buffers.push_back(std::move(buffer));
  return buffers.size() - 1;
}

// A vector does not promise the order in which it destroys its elements.
void PoolState::clear() {
  std::vector<Buffer> dropped;
  {
    const std::lock_guard lock(mutex);
    dropped.swap(buffers);
    clears.fetch_add(1, std::memory_order_release);
  }
  for (Buffer& buffer : dropped) buffer = {};
}

Scalars PoolState::scalars() {
  Scalars found;
  const std::lock_guard lock(mutex);
  for (const Buffer& buffer : buffers) {
    if (buffer.scalar) found.push_back(buffer.scalar);
  }
  return found;
}

std::shared_ptr<graphs::LaunchOrder> PoolState::launch_order() {
  const std::lock_guard lock(mutex);
  if (!order) order = std::make_shared<graphs::LaunchOrder>();
  return order;
}

}  // namespace detail

CapturePool::CapturePool() : pool_(std::make_shared<detail::PoolState>()) {}

std::size_t CapturePool::record_buffer(std::shared_ptr<const void> buffer) {
  return pool_->record({std::move(buffer), nullptr});
}

std::size_t CapturePool::record_scalar(const detail::ScalarMemory& scalar) {
  const std::shared_ptr<graphs::DeviceScalar>& memory = detail::ScalarAccess::of(scalar);
  return pool_->record({memory, memory});
}

std::size_t CapturePool::buffer_count() const {
  const std::lock_guard lock(pool_->mutex);
  return pool_->buffers.size();
}

void CapturePool::clear_buffers() { pool_->clear(); }
void CapturePool::seal() noexcept { pool_->sealed.store(true, std::memory_order_release); }
void CapturePool::unseal() noexcept { pool_->sealed.store(false, std::memory_order_release); }
bool CapturePool::is_sealed() const noexcept {
  return pool_->sealed.load(std::memory_order_acquire);
}

GPUPROF_END_NAMESPACE
