// There are no devices in a build without CUDA's headers.
#include "driver/devices.hpp"
#include "driver/error.hpp"

namespace gpuprof::driver {

std::vector<Device> devices() {
  throw Error(ErrorKind::kUnavailable,
              "this build of gpuprof has no CUDA support: CUDA's headers "
              "were not there when it was built");
}
bool has_live_context(int /*ordinal*/) noexcept { return false; }
int current_ordinal() noexcept { return -1; }
int driver_version() noexcept { return 0; }

}  // namespace gpuprof::driver
