// What a stream does to memory: set it, copy it, write a word, wait for one.
#include <algorithm>

#include "call.hpp"
#include "capture.hpp"
#include "copies.hpp"
#include "objects.hpp"
#include "time.hpp"

using namespace fakecuda;

namespace {

Result word_op(State& s, const char* function, Handle handle, Op op) {
  std::shared_ptr<Stream> stream;
  const Result answer = find_stream(s, function, handle, stream);
  if (answer != kSuccess) return answer;
  if (op.address % op.element_size != 0 || !is_allocated(s, op.address, op.element_size)) {
    return kInvalidValue;
  }
  return submit(s, stream, node_of(kNodeBatchMemOp, std::move(op)));
}

Result write_value(State& s, const char* function, Handle stream, DevicePtr address,
                   std::uint64_t value, unsigned size) {
  Op op;
  op.kind = OpKind::kWriteValue;
  op.address = address;
  op.value = value;
  op.count = 1;
  op.element_size = size;
  return word_op(s, function, stream, std::move(op));
}

Result set(State& s, const char* function, DevicePtr address, unsigned value, std::size_t count,
           unsigned element_size, Handle handle) {
  std::shared_ptr<Stream> stream;
  const Result answer = find_stream(s, function, handle, stream);
  if (answer != kSuccess) return answer;
  if (count == 0) return kSuccess;
  const std::size_t bytes = count * element_size;
  if (address % element_size != 0 || !is_allocated(s, address, bytes)) return kInvalidValue;
  Op op;
  op.kind = OpKind::kMemset;
  op.cost = time_for(bytes);
  op.address = address;
  op.value = value;
  op.count = count;
  op.element_size = element_size;
  return submit(s, stream, node_of(kNodeMemset, std::move(op)));
}

bool is_pinned(const State& s, std::uintptr_t address, std::size_t size) {
  return is_allocated(s, static_cast<DevicePtr>(address), size);
}

Result copy(State& s, const char* function, Op op, Handle handle) {
  std::shared_ptr<Stream> stream;
  const Result answer = find_stream(s, function, handle, stream);
  if (answer != kSuccess) return answer;
  if (op.count == 0) return kSuccess;
  const auto source = static_cast<DevicePtr>(op.source);
  if (!op.to_host && !is_allocated(s, op.address, op.count)) return kInvalidValue;
  if (!op.from_host && !is_allocated(s, source, op.count)) return kInvalidValue;
  const bool takes_along = op.from_host && !stream->session && !is_pinned(s, op.source, op.count);
  const bool waits = op.to_host && !stream->session &&
                     !is_pinned(s, static_cast<std::uintptr_t>(op.address), op.count);
  if (takes_along) {
    const auto* first = reinterpret_cast<const char*>(op.source);
    op.staged = std::make_shared<std::vector<char>>(first, first + op.count);
  }
  const Result submitted = submit(s, stream, copy_node(s, std::move(op)));
  if (submitted != kSuccess || !waits) return submitted;
  const Done done = stream->last;
  wait_until_over(s, done);
  return meet_fault(s, *stream->context);
}

}  // namespace

FAKECUDA_EXPORT Result cuMemsetD8Async(DevicePtr address, unsigned char value, std::size_t count,
                                       Handle stream) {
  return call({__func__, InChild::kAnswersSuccess}, [&](const char* function) {
    return set(state(), function, address, value, count, 1, stream);
  });
}

FAKECUDA_EXPORT Result cuMemsetD16Async(DevicePtr address, unsigned short value, std::size_t count,
                                        Handle stream) {
  return call({__func__, InChild::kAnswersSuccess}, [&](const char* function) {
    return set(state(), function, address, value, count, 2, stream);
  });
}

FAKECUDA_EXPORT Result cuMemsetD32Async(DevicePtr address, unsigned value, std::size_t count,
                                        Handle stream) {
  return call({__func__, InChild::kAnswersSuccess}, [&](const char* function) {
    return set(state(), function, address, value, count, 4, stream);
  });
}

// A copy to memory that is not pinned returns when it is done; one from such memory takes the data
// along.
FAKECUDA_EXPORT Result cuMemcpyDtoHAsync_v2(void* target, DevicePtr source, std::size_t size,
                                            Handle stream) {
  return call({__func__}, [&](const char* function) {
    Op op = copy_op(reinterpret_cast<std::uintptr_t>(target), static_cast<std::uintptr_t>(source),
                    size);
    op.to_host = true;
    return copy(state(), function, std::move(op), stream);
  });
}

FAKECUDA_EXPORT Result cuMemcpyHtoDAsync_v2(DevicePtr target, const void* source, std::size_t size,
                                            Handle stream) {
  return call({__func__}, [&](const char* function) {
    Op op = copy_op(static_cast<std::uintptr_t>(target), reinterpret_cast<std::uintptr_t>(source),
                    size);
    op.from_host = true;
    return copy(state(), function, std::move(op), stream);
  });
}

FAKECUDA_EXPORT Result cuMemcpyDtoDAsync_v2(DevicePtr target, DevicePtr source, std::size_t size,
                                            Handle stream) {
  return call({__func__}, [&](const char* function) {
    Op op = copy_op(static_cast<std::uintptr_t>(target), static_cast<std::uintptr_t>(source), size);
    return copy(state(), function, std::move(op), stream);
  });
}

FAKECUDA_EXPORT Result cuStreamWaitValue32_v2(Handle stream, DevicePtr address, std::uint32_t value,
                                              unsigned flags) {
  return call({__func__}, [&](const char* function) {
    Op op;
    op.kind = OpKind::kWaitValue;
    op.address = address;
    op.value = value;
    op.flags = flags;
    return word_op(state(), function, stream, std::move(op));
  });
}

FAKECUDA_EXPORT Result cuStreamWriteValue32_v2(Handle stream, DevicePtr address,
                                               std::uint32_t value, unsigned /*flags*/) {
  return call({__func__, InChild::kAnswersSuccess}, [&](const char* function) {
    return write_value(state(), function, stream, address, value, 4);
  });
}

FAKECUDA_EXPORT Result cuStreamWriteValue64_v2(Handle stream, DevicePtr address,
                                               std::uint64_t value, unsigned /*flags*/) {
  return call({__func__, InChild::kAnswersSuccess}, [&](const char* function) {
    return write_value(state(), function, stream, address, value, 8);
  });
}
