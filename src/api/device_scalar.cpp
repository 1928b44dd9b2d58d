#include "gpuprof/device_scalar.hpp"

#include "api/graph_state.hpp"
#include "timing/clock.hpp"

GPUPROF_BEGIN_NAMESPACE
namespace detail {

// The memory of a default stream's scalar is that of the thread's context, else of device 0.
ScalarMemory::ScalarMemory(std::size_t bytes, std::uint64_t bits, Stream stream)
    : scalar_(std::make_shared<graphs::DeviceScalar>(bytes, bits, stream.handle(), 0)) {}

void ScalarMemory::update(std::uint64_t bits, Stream stream, bool record) const {
  scalar_->update(bits, stream.handle(), record);
}

std::uint64_t ScalarMemory::read(const Stream* stream) const {
  graphs::DeviceScalar::Reading reading =
      scalar_->reading(stream != nullptr ? stream->handle() : scalar_->last_stream());
  reading.poll(timing::kNoDeadline);
  return reading.fetch();
}

std::uintptr_t ScalarMemory::address() const {
  return static_cast<std::uintptr_t>(scalar_->address());
}

int ScalarMemory::device() const { return scalar_->ordinal(); }

}  // namespace detail
GPUPROF_END_NAMESPACE
