// Allocating memory, at once and in stream order. Device memory is host memory here, so that a test
// may read and write it through the pointer.
#include <cstdlib>

#include "call.hpp"
#include "capture.hpp"
#include "objects.hpp"
#include "time.hpp"

using namespace fakecuda;

namespace {

constexpr std::size_t kAlignment = 256;

std::uintptr_t zeroed(std::size_t size) {
  // calloc leaves the pages of a large block untouched, so big device buffers cost nothing.
  void* block = std::calloc((size + kAlignment - 1) / kAlignment, kAlignment);
  return reinterpret_cast<std::uintptr_t>(block);
}

Result make_memory(State& s, std::size_t size, bool host, Context& context, const char* function,
                   std::uintptr_t& address) {
  if (!host && size > s.config.total_memory - s.memory_used) return kOutOfMemory;
  address = zeroed(size);
  if (address == 0) return kOutOfMemory;
  if (!host) s.memory_used += size;
  ++s.serial;
  Allocation& made = s.memory[address];
  made.size = size;
  made.host = host;
  made.context = &context;
  made.label = new_label(function);
  return kSuccess;
}

Result allocate(State& s, std::size_t size, bool host, const char* function,
                std::uintptr_t& address) {
  Context* context = nullptr;
  if (size == 0) {
    log_line("Requested 0 byte allocation");
    return kInvalidValue;
  }
  if (const Result answer = current_context(s, context); answer != kSuccess) return answer;
  if (const Result refused = refuse_unsafe(s); refused != kSuccess) return refused;
  return make_memory(s, size, host, *context, function, address);
}

Result release(State& s, std::uintptr_t address, bool host) {
  if (const Result refused = refuse_unsafe(s); refused != kSuccess) return refused;
  if (address == 0) return kSuccess;
  const auto found = s.memory.find(address);
  if (found == s.memory.end() || found->second.host != host) return kInvalidValue;
  if (found->second.leaving || !found->second.mapped) return kInvalidValue;
  if (found->second.context->sticky != kSuccess) return found->second.context->sticky;
  wait_until_idle(s, streams_of(s, *found->second.context));
  free_memory(s, address);
  return kSuccess;
}

// The address is the graph's from here on; there is memory behind it from a launch to its release.
Result allocate_in_capture(State& s, std::size_t size, const std::shared_ptr<Stream>& stream,
                           const char* function, std::uintptr_t& address) {
  if (stream->session->invalidated) return kCaptureInvalidated;
  address = zeroed(size);
  if (address == 0) return kOutOfMemory;
  Node node = node_of(kNodeMemAlloc, {});
  node.op.kind = OpKind::kJoin;
  node.op.address = address;
  node.op.count = size;
  node.op.element_size = 1;
  node.memory = std::make_shared<char>();
  ++s.serial;
  ++s.graph_allocations;
  Allocation& made = s.memory[address];
  made.size = size;
  made.context = stream->context;
  made.label = new_label(function);
  made.pooled = made.of_graph = true;
  made.mapped = false;
  made.users = node.memory;
  add_node(s, *stream, std::move(node));
  return kSuccess;
}

Result allocate_in_order(State& s, DevicePtr* out, std::size_t size, Handle handle,
                         const char* function) {
  std::shared_ptr<Stream> stream;
  std::uintptr_t address = 0;
  if (out == nullptr) return kInvalidValue;
  Result answer = find_stream(s, function, handle, stream);
  if (answer == kSuccess && !stream->session) answer = refuse_unsafe(s);
  if (answer != kSuccess) return answer;
  // No memory is no error here, and no memory either.
  if (size != 0 && stream->session) {
    answer = allocate_in_capture(s, size, stream, function, address);
  } else if (size != 0) {
    answer = make_memory(s, size, false, *stream->context, function, address);
    if (answer == kSuccess) s.memory[address].pooled = true;
  }
  if (answer == kSuccess) *out = address;
  return answer;
}

Result release_in_order(State& s, DevicePtr address, Handle handle, const char* function) {
  std::shared_ptr<Stream> stream;
  Result answer = find_stream(s, function, handle, stream);
  if (answer == kSuccess && !stream->session) answer = refuse_unsafe(s);
  if (answer != kSuccess) return answer;
  const auto found = s.memory.find(static_cast<std::uintptr_t>(address));
  if (found == s.memory.end() || found->second.host || found->second.leaving) return kInvalidValue;
  Op op;
  op.address = address;
  if (stream->session) {
    if (!found->second.of_graph) return kInvalidValue;
    op.kind = OpKind::kJoin;
    return submit(s, stream, node_of(kNodeMemFree, std::move(op)));
  }
  if (!found->second.mapped) return kInvalidValue;
  op.kind = OpKind::kFree;
  // The release may have happened, and its entry be gone, when submit() returns.
  found->second.leaving = true;
  const Result submitted = submit(s, stream, node_of(kNodeMemFree, std::move(op)));
  if (submitted != kSuccess) found->second.leaving = false;
  return submitted;
}

}  // namespace

FAKECUDA_EXPORT Result cuMemAlloc_v2(DevicePtr* out, std::size_t size) {
  return call({__func__}, [&](const char* function) -> Result {
    std::uintptr_t address = 0;
    if (out == nullptr) return kInvalidValue;
    const Result answer = allocate(state(), size, false, function, address);
    if (answer == kSuccess) *out = address;
    return answer;
  });
}

FAKECUDA_EXPORT Result cuMemFree_v2(DevicePtr address) {
  return call_destroying({__func__}, address, [&] { return release(state(), address, false); });
}

FAKECUDA_EXPORT Result cuMemHostAlloc(void** out, std::size_t size, unsigned /*flags*/) {
  return call({__func__}, [&](const char* function) -> Result {
    std::uintptr_t address = 0;
    if (out == nullptr) return kInvalidValue;
    const Result answer = allocate(state(), size, true, function, address);
    if (answer == kSuccess) *out = reinterpret_cast<void*>(address);
    return answer;
  });
}

FAKECUDA_EXPORT Result cuMemFreeHost(void* block) {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  return call_destroying({__func__}, address, [&] { return release(state(), address, true); });
}

FAKECUDA_EXPORT Result cuMemHostGetDevicePointer_v2(DevicePtr* out, void* block, unsigned flags) {
  return call({__func__}, [&]() -> Result {
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    Context* context = nullptr;
    const Result answer = current_context(state(), context);
    if (answer != kSuccess) return answer;
    if (out == nullptr || flags != 0 || !is_allocated(state(), address, 1)) return kInvalidValue;
    *out = address;
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return call({__func__}, [&]() -> Result {
    State& s = state();
    Context* context = nullptr;
    if (free == nullptr || total == nullptr) return kInvalidValue;
    if (const Result answer = current_context(s, context); answer != kSuccess) return answer;
    *total = s.config.total_memory;
    *free = s.config.total_memory - s.memory_used;
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuMemAllocAsync(DevicePtr* out, std::size_t size, Handle stream) {
  return call({__func__}, [&](const char* function) {
    return allocate_in_order(state(), out, size, stream, function);
  });
}

FAKECUDA_EXPORT Result cuMemFreeAsync(DevicePtr address, Handle stream) {
  return call_destroying({__func__}, address, [&](const char* function) {
    return release_in_order(state(), address, stream, function);
  });
}
