// The devices of the machine, and which of them this process uses. Any thread; nothing waits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpuprof::driver {

struct Device {
  int index = 0;
  std::string name;
  std::string uuid;
  std::uint64_t total_memory = 0;
  int major = 0;
  int minor = 0;
  int multiprocessors = 0;
  int l2_bytes = 0;
};

// All devices. Initialises the driver. Throws Error.
std::vector<Device> devices();

// Whether device `ordinal` has a live primary context. Initialises nothing.
bool has_live_context(int ordinal) noexcept;

// The ordinal of the current context's device, or -1 without one.
int current_ordinal() noexcept;

// The version of CUDA that the driver supports, as CUDA counts: 13000. Opens the driver's library
// but initialises nothing; 0 without a driver.
int driver_version() noexcept;

}  // namespace gpuprof::driver
