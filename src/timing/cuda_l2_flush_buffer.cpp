#include "driver/cuda_thread_state.hpp"
#include "timing/cuda_contexts.hpp"
#include "timing/cuda_event_clock.hpp"
#include "timing/l2_flush_buffer.hpp"

namespace gpuprof::timing {

using driver::check;

DeviceBuffer::DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
  const driver::Table& table = driver::ready();
  clock_ = contexts::find(table, 0, 0).clock;
  const driver::CurrentContext current(table, clock_->context());
  CUdeviceptr address = 0;
  check(table.cuMemAlloc(&address, bytes), "cuMemAlloc");
  address_ = address;
  clock_->hold();
}

DeviceBuffer::~DeviceBuffer() {
  try {
    if (clock_->check_alive()) {
      const driver::Table& table = driver::ready();
      const driver::CurrentContext current(table, clock_->context());
      const driver::RelaxedCapture relaxed(table);
      table.cuMemFree(address_);
    }
  } catch (...) {  // the context is gone, and the memory with it
  }
  clock_->let_go();
}

void DeviceBuffer::fill(int repeats, std::uintptr_t stream) {
  const driver::Table& table = driver::ready();
  static_cast<void>(clock_->access());
  const driver::CurrentContext current(table, clock_->context());
  for (int i = 0; i < repeats; ++i) {
    check(table.cuMemsetD32Async(address_, static_cast<unsigned>(i), bytes_ / 4,
                                 contexts::as_stream(stream)),
          "cuMemsetD32Async");
  }
}

}  // namespace gpuprof::timing
