#include "gpuprof/capture_pool.hpp"

#include <utility>

#include "api/graph_state.hpp"

GPUPROF_BEGIN_NAMESPACE

CapturePool::CapturePool() : pool_(std::make_shared<graphs::CapturePool>()) {}

std::size_t CapturePool::record_buffer(std::shared_ptr<const void> buffer) {
  return pool_->record({std::move(buffer), nullptr});
}

std::size_t CapturePool::record_scalar(const detail::ScalarMemory& scalar) {
  const std::shared_ptr<graphs::DeviceScalar>& memory = detail::ScalarAccess::of(scalar);
  return pool_->record({memory, memory});
}

std::size_t CapturePool::buffer_count() const { return pool_->buffer_count(); }
void CapturePool::clear_buffers() { pool_->clear(); }
void CapturePool::seal() noexcept { pool_->seal(); }
void CapturePool::unseal() noexcept { pool_->unseal(); }
bool CapturePool::is_sealed() const noexcept { return pool_->sealed(); }

GPUPROF_END_NAMESPACE
