#include "driver/cuda_thread_state.hpp"
#include "timing/cuda_contexts.hpp"
#include "timing/l2_flush_buffer.hpp"

namespace gpuprof::timing {

using driver::check;

DeviceBuffer::DeviceBuffer(std::size_t bytes)
    : bytes_(bytes), generation_(driver::fork_generation()) {
  const driver::Table& table = driver::ready();
  CUcontext context = nullptr;
  check(table.cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  if (context == nullptr) {
    check(table.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    retained_ = true;
  }
  context_ = context;
  const driver::CurrentContext current(table, context);
  CUdeviceptr address = 0;
  const CUresult status = table.cuMemAlloc(&address, bytes);
  if (status != CUDA_SUCCESS && retained_) table.cuDevicePrimaryCtxRelease(0);
  check(status, "cuMemAlloc");
  address_ = address;
}

DeviceBuffer::~DeviceBuffer() {
  const bool usable = driver::blocked.load(std::memory_order_relaxed) == 0;
  if (!usable || generation_ != driver::fork_generation()) return;
  try {
    const driver::Table& table = driver::ready();
    {
      const driver::CurrentContext current(table, static_cast<CUcontext>(context_));
      const driver::RelaxedCapture relaxed(table);
      table.cuMemFree(address_);
    }
    if (retained_) table.cuDevicePrimaryCtxRelease(0);
  } catch (...) {  // the context is gone, and the memory with it
  }
}

void DeviceBuffer::fill(int repeats, std::uintptr_t stream) {
  const driver::Table& table = driver::ready();
  const driver::CurrentContext current(table, static_cast<CUcontext>(context_));
  for (int i = 0; i < repeats; ++i) {
    check(table.cuMemsetD32Async(address_, static_cast<unsigned>(i), bytes_ / 4,
                                 contexts::as_stream(stream)),
          "cuMemsetD32Async");
  }
}

void DeviceBuffer::copy(int repeats, std::uintptr_t stream) {
  const driver::Table& table = driver::ready();
  const driver::CurrentContext current(table, static_cast<CUcontext>(context_));
  const std::size_t half = bytes_ / 2;
  for (int i = 0; i < repeats; ++i) {
    check(table.cuMemcpyDtoDAsync(address_ + half, address_, half, contexts::as_stream(stream)),
          "cuMemcpyDtoDAsync");
  }
}

}  // namespace gpuprof::timing
