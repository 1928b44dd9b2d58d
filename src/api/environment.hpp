// What the environment switches: GPUPROF_DISABLE and GPUPROF_NVTX.
#pragma once

namespace gpuprof::api {

// Reads it once, before main where a file of the hot path is linked, so that the hot path looks at
// plain switches. Always true.
bool read_environment() noexcept;

}  // namespace gpuprof::api
