#include "driver/devices.hpp"

#include <exception>
#include <utility>

#include "driver/cuda_table.hpp"

namespace gpuprof::driver {

bool has_live_context(int ordinal) noexcept {
  const Table* table = driver::in_use_or_null();
  CUdevice handle = 0;
  unsigned int flags = 0;
  int active = 0;
  return table != nullptr && table->cuDeviceGet(&handle, ordinal) == CUDA_SUCCESS &&
         table->cuDevicePrimaryCtxGetState(handle, &flags, &active) == CUDA_SUCCESS && active != 0;
}

int current_ordinal() noexcept {
  const Table* table = driver::in_use_or_null();
  CUdevice handle = 0;
  return table != nullptr && table->cuCtxGetDevice(&handle) == CUDA_SUCCESS ? handle : -1;
}

int driver_version() noexcept {
  try {
    int version = 0;
    return loaded().cuDriverGetVersion(&version) == CUDA_SUCCESS ? version : 0;
  } catch (const std::exception&) {  // there is none
    return 0;
  }
}

std::vector<Device> devices() {
  const Table& table = driver::ready();
  int count = 0;
  check(table.cuDeviceGetCount(&count), "cuDeviceGetCount");
  std::vector<Device> found;
  for (int index = 0; index < count; ++index) {
    Device entry;
    entry.index = index;
    CUdevice handle = 0;
    check(table.cuDeviceGet(&handle, index), "cuDeviceGet");
    char name[256] = {};
    check(table.cuDeviceGetName(name, sizeof name, handle), "cuDeviceGetName");
    entry.name = name;
    CUuuid uuid{};
    if (table.cuDeviceGetUuid(&uuid, handle) == CUDA_SUCCESS) {
      constexpr char kHex[] = "0123456789abcdef";
      for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) entry.uuid += '-';
        const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
        entry.uuid += kHex[byte >> 4U];
        entry.uuid += kHex[byte & 15U];
      }
    }
    std::size_t memory = 0;
    if (table.cuDeviceTotalMem(&memory, handle) == CUDA_SUCCESS) entry.total_memory = memory;
    const auto attribute = [&](CUdevice_attribute which) {
      int value = 0;
      table.cuDeviceGetAttribute(&value, which, handle);
      return value;
    };
    entry.major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    entry.minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    entry.multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    entry.l2_bytes = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
    found.push_back(std::move(entry));
  }
  return found;
}

}  // namespace gpuprof::driver
