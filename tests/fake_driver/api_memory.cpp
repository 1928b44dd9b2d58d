// Memory, and the operations on it that a stream carries out. Device memory is host memory here,
// so that a test may read and write it through the pointer.
#include <cstdlib>

#include "call.hpp"
#include "capture.hpp"
#include "objects.hpp"
#include "time.hpp"

using namespace fakecuda;

namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kBytesPerNs = 64;

std::uintptr_t zeroed(std::size_t size) {
  // calloc leaves the pages of a large block untouched, so big device buffers cost nothing.
  void* block = std::calloc((size + kAlignment - 1) / kAlignment, kAlignment);
  return reinterpret_cast<std::uintptr_t>(block);
}

Result allocate(State& s, std::size_t size, bool host, const char* function,
                std::uintptr_t& address) {
  Context* context = nullptr;
  if (size == 0) return kInvalidValue;
  if (const Result answer = current_context(s, context); answer != kSuccess) return answer;
  if (const Result refused = refuse_unsafe(s); refused != kSuccess) return refused;
  if (!host && size > s.config.total_memory - s.memory_used) return kOutOfMemory;
  address = zeroed(size);
  if (address == 0) return kOutOfMemory;
  if (!host) s.memory_used += size;
  ++s.serial;
  s.memory[address] = {size, host, context, new_label(function)};
  return kSuccess;
}

Result release(State& s, std::uintptr_t address, bool host) {
  if (const Result refused = refuse_unsafe(s); refused != kSuccess) return refused;
  if (address == 0) return kSuccess;
  const auto found = s.memory.find(address);
  if (found == s.memory.end() || found->second.host != host) return kInvalidValue;
  if (found->second.context->sticky != kSuccess) return found->second.context->sticky;
  wait_until_idle(s, streams_of(s, *found->second.context));
  // Looked up again: the lock was given up while the device was busy.
  const auto still = s.memory.find(address);
  if (still == s.memory.end()) return kInvalidValue;
  if (!host) s.memory_used -= still->second.size;
  s.memory.erase(still);
  std::free(reinterpret_cast<void*>(address));
  return kSuccess;
}

bool is_allocated(const State& s, DevicePtr address, std::size_t size) {
  auto after = s.memory.upper_bound(static_cast<std::uintptr_t>(address));
  if (after == s.memory.begin()) return false;
  const auto& [start, allocation] = *--after;
  return address - start <= allocation.size && size <= allocation.size - (address - start);
}

Result word_op(State& s, const char* function, Handle handle, Op op) {
  std::shared_ptr<Stream> stream;
  const Result answer = find_stream(s, function, handle, stream);
  if (answer != kSuccess) return answer;
  if (op.address % 4 != 0 || !is_allocated(s, op.address, 4)) return kInvalidValue;
  return submit(s, stream, kNodeBatchMemOp, std::move(op));
}

}  // namespace

FAKECUDA_EXPORT Result cuMemAlloc_v2(DevicePtr* out, std::size_t size) {
  static const Function function{"cuMemAlloc_v2"};
  return call(function, [&]() -> Result {
    std::uintptr_t address = 0;
    if (out == nullptr) return kInvalidValue;
    const Result answer = allocate(state(), size, false, function.symbol, address);
    if (answer == kSuccess) *out = address;
    return answer;
  });
}

FAKECUDA_EXPORT Result cuMemFree_v2(DevicePtr address) {
  static const Function function{"cuMemFree_v2"};
  return call_destroying(function, address, [&] { return release(state(), address, false); });
}

FAKECUDA_EXPORT Result cuMemHostAlloc(void** out, std::size_t size, unsigned /*flags*/) {
  static const Function function{"cuMemHostAlloc"};
  return call(function, [&]() -> Result {
    std::uintptr_t address = 0;
    if (out == nullptr) return kInvalidValue;
    const Result answer = allocate(state(), size, true, function.symbol, address);
    if (answer == kSuccess) *out = reinterpret_cast<void*>(address);
    return answer;
  });
}

FAKECUDA_EXPORT Result cuMemFreeHost(void* block) {
  static const Function function{"cuMemFreeHost"};
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  return call_destroying(function, address, [&] { return release(state(), address, true); });
}

FAKECUDA_EXPORT Result cuMemHostGetDevicePointer_v2(DevicePtr* out, void* block, unsigned flags) {
  static const Function function{"cuMemHostGetDevicePointer_v2"};
  return call(function, [&]() -> Result {
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    Context* context = nullptr;
    const Result answer = current_context(state(), context);
    if (answer != kSuccess) return answer;
    if (out == nullptr || flags != 0 || !is_allocated(state(), address, 1)) return kInvalidValue;
    *out = address;
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuMemsetD32Async(DevicePtr address, unsigned value, std::size_t count,
                                        Handle handle) {
  static const Function function{"cuMemsetD32Async"};
  return call(function, [&]() -> Result {
    State& s = state();
    std::shared_ptr<Stream> stream;
    const Result answer = find_stream(s, function.symbol, handle, stream);
    if (answer != kSuccess) return answer;
    if (count == 0) return kSuccess;
    if (address % 4 != 0 || !is_allocated(s, address, count * 4)) return kInvalidValue;
    Op op;
    op.kind = OpKind::kMemset;
    op.cost = static_cast<Ns>(count * 4 / kBytesPerNs);
    op.address = address;
    op.value = value;
    op.count = count;
    return submit(s, stream, kNodeMemset, std::move(op));
  });
}

FAKECUDA_EXPORT Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  static const Function function{"cuMemGetInfo_v2"};
  return call(function, [&]() -> Result {
    State& s = state();
    Context* context = nullptr;
    if (free == nullptr || total == nullptr) return kInvalidValue;
    if (const Result answer = current_context(s, context); answer != kSuccess) return answer;
    *total = s.config.total_memory;
    *free = s.config.total_memory - s.memory_used;
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuStreamWaitValue32_v2(Handle stream, DevicePtr address, std::uint32_t value,
                                              unsigned flags) {
  static const Function function{"cuStreamWaitValue32_v2"};
  return call(function, [&] {
    Op op;
    op.kind = OpKind::kWaitValue;
    op.address = address;
    op.value = value;
    op.flags = flags;
    return word_op(state(), function.symbol, stream, std::move(op));
  });
}

FAKECUDA_EXPORT Result cuStreamWriteValue32_v2(Handle stream, DevicePtr address,
                                               std::uint32_t value, unsigned flags) {
  static const Function function{"cuStreamWriteValue32_v2"};
  return call(function, [&] {
    Op op;
    op.kind = OpKind::kWriteValue;
    op.address = address;
    op.value = value;
    op.flags = flags;
    return word_op(state(), function.symbol, stream, std::move(op));
  });
}
