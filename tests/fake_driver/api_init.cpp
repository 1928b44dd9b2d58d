// cuInit, versions, error names, devices.
#include <cstdlib>
#include <cstring>
#include <map>

#include "call.hpp"
#include "errors.hpp"
#include "objects.hpp"

using namespace fakecuda;

namespace {

// As the real driver does: what was registered with atexit before cuInit runs after this.
void take_down_at_exit() {
  static const bool registered = std::atexit([] {
                                   lock();
                                   state().gone = true;
                                   unlock();
                                 }) == 0;
  (void)registered;
}

// Of the attributes that have a value here; the others are 0.
const std::map<int, int> kValues = {
    {1, 1024},      // MAX_THREADS_PER_BLOCK
    {10, 32},       // WARP_SIZE
    {13, 1980000},  // CLOCK_RATE, kHz
    {16, 4},        // MULTIPROCESSOR_COUNT
    {31, 1},        // CONCURRENT_KERNELS
    {38, 1 << 20},  // L2_CACHE_SIZE
    {40, 2},        // ASYNC_ENGINE_COUNT
    {41, 1},        // UNIFIED_ADDRESSING
    {75, 9},        // COMPUTE_CAPABILITY_MAJOR
    {92, 1},        // CAN_USE_STREAM_MEM_OPS
};

constexpr int kAttributes = 150;

}  // namespace

FAKECUDA_EXPORT Result cuInit(unsigned flags) {
  return call({__func__, InChild::kNotInitialised, false}, [&]() -> Result {
    State& s = state();
    if (flags != 0) return kInvalidValue;
    if (s.config.init != kSuccess) return s.config.init;
    if (s.config.device_count == 0) return kNoDevice;
    s.initialised = true;
    take_down_at_exit();
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuDriverGetVersion(int* version) {
  return call({__func__, InChild::kWorks, false}, [&]() -> Result {
    if (version == nullptr) return kInvalidValue;
    *version = state().config.driver_version;
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuGetErrorName(int code, const char** text) {
  return call({__func__, InChild::kWorks, false, false}, [&]() -> Result {
    *text = error_name_or_null(code);
    return *text != nullptr ? kSuccess : kInvalidValue;
  });
}

FAKECUDA_EXPORT Result cuGetErrorString(int code, const char** text) {
  return call({__func__, InChild::kWorks, false, false}, [&]() -> Result {
    *text = error_text_or_null(code);
    return *text != nullptr ? kSuccess : kInvalidValue;
  });
}

FAKECUDA_EXPORT Result cuDeviceGet(int* device, int ordinal) {
  return call({__func__}, [&]() -> Result {
    if (device == nullptr) return kInvalidValue;
    if (!is_device(state(), ordinal)) return kInvalidDevice;
    *device = ordinal;
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuDeviceGetCount(int* count) {
  return call({__func__}, [&]() -> Result {
    if (count == nullptr) return kInvalidValue;
    *count = state().config.device_count;
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuDeviceGetName(char* name, int length, int device) {
  return call({__func__}, [&](const char* function) -> Result {
    if (!is_device(state(), device)) return kInvalidDevice;
    if (name == nullptr || length <= 0) misuse(function, "without room for the name");
    std::strncpy(name, "Fake GPU", static_cast<std::size_t>(length));
    name[length - 1] = '\0';
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuDeviceGetAttribute(int* value, int which, int device) {
  return call({__func__}, [&]() -> Result {
    if (!is_device(state(), device)) return kInvalidDevice;
    if (value == nullptr || which <= 0 || which > kAttributes) return kInvalidValue;
    const auto found = kValues.find(which);
    *value = found == kValues.end() ? 0 : found->second;
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuDeviceGetUuid_v2(Uuid* uuid, int device) {
  return call({__func__}, [&]() -> Result {
    if (!is_device(state(), device)) return kInvalidDevice;
    if (uuid == nullptr) return kInvalidValue;
    std::memcpy(uuid->bytes, "fake-gpu-uuid-00", sizeof uuid->bytes);
    uuid->bytes[15] = static_cast<unsigned char>('0' + device);
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
  return call({__func__}, [&]() -> Result {
    if (!is_device(state(), device)) return kInvalidDevice;
    if (bytes == nullptr) return kInvalidValue;
    *bytes = state().config.total_memory;
    return kSuccess;
  });
}
