#include "gpuprof/device.hpp"

#include <exception>

#include "api/warnings.hpp"
#include "driver/devices.hpp"
#include "timing/device.hpp"

GPUPROF_BEGIN_NAMESPACE

bool cuda_available() noexcept {
  try {
    timing::device::require();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

std::vector<Device> devices() {
  std::vector<Device> found;
  if (!cuda_available()) return found;
  for (const auto& device : driver::devices()) {
    found.push_back({device.index, device.name, static_cast<std::size_t>(device.total_memory),
                     device.major, device.minor, device.multiprocessors});
  }
  return found;
}

Calibration calibrate(int device) {
  const timing::device::Calibration measured = timing::device::calibrate(device);
  api::emit_pending_warnings();
  return {measured.device, measured.tick_ns, measured.idle_ns, measured.queued_ns, measured.pairs};
}

GPUPROF_END_NAMESPACE
