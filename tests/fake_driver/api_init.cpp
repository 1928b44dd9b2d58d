// cuInit, versions, error names, devices.
#include <cstdlib>
#include <cstring>

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

int attribute(int which) {
  switch (which) {
    case 1:
      return 1024;  // MAX_THREADS_PER_BLOCK
    case 10:
      return 32;  // WARP_SIZE
    case 13:
      return 1980000;  // CLOCK_RATE, kHz
    case 16:
      return 4;  // MULTIPROCESSOR_COUNT
    case 31:
      return 1;  // CONCURRENT_KERNELS
    case 38:
      return 1 << 20;  // L2_CACHE_SIZE
    case 40:
      return 2;  // ASYNC_ENGINE_COUNT
    case 41:
      return 1;  // UNIFIED_ADDRESSING
    case 50:
      return 0;  // PCI_DOMAIN_ID
    case 75:
      return 9;  // COMPUTE_CAPABILITY_MAJOR
    case 76:
      return 0;  // COMPUTE_CAPABILITY_MINOR
    case 92:
      return 1;  // CAN_USE_STREAM_MEM_OPS
    default:
      return 0;
  }
}

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
    *value = attribute(which);
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
