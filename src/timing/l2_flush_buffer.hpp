// Device memory that can be filled: to flush the L2 cache, and as GPU work for demos and tests.
//
// Belongs to the context that is current at construction, else to the primary context of device 0;
// where that was destroyed or reset, its calls throw and its memory is gone. Nothing waits for the
// work but the destructor, as freeing memory does. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuprof::timing {

class EventClock;

class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t bytes);  // throws driver::Error
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer();

  // Writes the whole buffer `repeats` times on `stream`. Throws driver::Error.
  void fill(int repeats, std::uintptr_t stream);

 private:
  std::size_t bytes_ = 0;
  std::uint64_t address_ = 0;
  EventClock* clock_ = nullptr;  // of its context
};

}  // namespace gpuprof::timing
