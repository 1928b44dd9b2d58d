// A 32-bit word in pinned host memory that streams can wait for.
//
// A wait is for a number: the stream goes on once the word has reached it. Numbers only grow, so an
// old wait never blocks again. Belongs to the context that is current at construction. Errors are
// driver::Error: CUDA_ERROR_NOT_SUPPORTED from hold() where the device has no such wait.
#pragma once

#include <cstdint>

#include "driver/cuda_thread_state.hpp"

namespace gpuprof::timing {

class CudaGateWord {
 public:
  explicit CudaGateWord(const driver::Table& table) : table_(table) {
    void* memory = nullptr;
    driver::check(table.cuMemHostAlloc(&memory, sizeof(std::uint32_t), CU_MEMHOSTALLOC_DEVICEMAP),
                  "cuMemHostAlloc");
    word_ = static_cast<std::uint32_t*>(memory);
    __atomic_store_n(word_, 0U, __ATOMIC_RELEASE);
  }
  CudaGateWord(const CudaGateWord&) = delete;
  CudaGateWord& operator=(const CudaGateWord&) = delete;
  // No stream may wait for the word, and its context must be alive.
  ~CudaGateWord() {
    if (word_ == nullptr || driver::is_blocked()) return;
    const driver::RelaxedCapture relaxed(table_);
    table_.cuMemFreeHost(word_);
  }

  // Leaks the memory: its context is gone, or it is the parent process's.
  void abandon() noexcept { word_ = nullptr; }

  // Later work on `stream` runs once the word has reached `number`.
  void hold(CUstream stream, std::uint32_t number) {
    CUdeviceptr address = 0;
    driver::check(table_.cuMemHostGetDevicePointer(&address, word_, 0),
                  "cuMemHostGetDevicePointer");
    driver::check(table_.cuStreamWaitValue32(stream, address, number, CU_STREAM_WAIT_VALUE_GEQ),
                  "cuStreamWaitValue32");
  }
  void reach(std::uint32_t number) noexcept { __atomic_store_n(word_, number, __ATOMIC_RELEASE); }
  [[nodiscard]] std::uint32_t* word() const noexcept { return word_; }

 private:
  const driver::Table& table_;
  std::uint32_t* word_ = nullptr;
};

}  // namespace gpuprof::timing
