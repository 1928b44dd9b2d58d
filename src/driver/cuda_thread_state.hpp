// The calling thread's context and capture mode, changed for a block and restored.
//
// For the stack of one function: destroyed on the same thread, in reverse order. Destructors never
// throw.
#pragma once

#include "driver/cuda_table.hpp"
#include "driver/process.hpp"

namespace gpuprof::driver {

// Makes `context` current; null changes nothing.
class CurrentContext {
 public:
  CurrentContext(const Table& table, CUcontext context) : table_(table) {
    if (context != nullptr) push(context);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  ~CurrentContext() {
    if (pushed_) pop();
  }

 private:
  void push(CUcontext context) {
    CUcontext current = nullptr;
    if (table_.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context) return;
    check(table_.cuCtxPushCurrent(context), "cuCtxPushCurrent");
    pushed_ = true;
  }
  void pop() const noexcept {
    CUcontext popped = nullptr;
    table_.cuCtxPopCurrent(&popped);
  }

  const Table& table_;
  bool pushed_ = false;
};

// Puts this thread into relaxed capture mode, in which queries, waits and frees break no stream
// capture. While it is held no other user code runs than destructors: a capture that is begun then
// would lose its protection.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Table& table) noexcept : table_(&table) {
    table_->cuThreadExchangeStreamCaptureMode(&before_);
  }
  // For destroying other people's objects. Does nothing where the driver cannot be used.
  RelaxedCapture() noexcept : table_(usable_or_null()) {
    if (table_ != nullptr) table_->cuThreadExchangeStreamCaptureMode(&before_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  // The mode is set again if the call failed: a thread left in relaxed mode has no protection. What
  // ran meanwhile may have forked, or be the end of the process.
  ~RelaxedCapture() {
    if (before_ == CU_STREAM_CAPTURE_MODE_RELAXED) return;  // it was, or the first call failed
    for (int tries = 0; tries < 2; ++tries) {
      if ((blocked.load(std::memory_order_relaxed) & (kForked | kExiting)) != 0) return;
      CUstreamCaptureMode mode = before_;
      if (table_->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS) return;
    }
  }

 private:
  const Table* table_;
  CUstreamCaptureMode before_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // taken for the one before it
};

}  // namespace gpuprof::driver
