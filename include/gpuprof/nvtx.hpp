/// @file
/// NVTX, through which tools such as Nsight Systems see ranges.
#pragma once

#include <string_view>

#include "gpuprof/stream.hpp"

namespace gpuprof::nvtx {
inline namespace GPUPROF_ABI {

/// Gives ranges and timer scopes to NVTX from now on. It is off until then, because NVTX loads the
/// tool that the environment names at its first call; with `GPUPROF_NVTX=1` in the environment it
/// is on from the start. One warning if no tool listens. Any thread.
void enable() noexcept;
/// Ranges that are opened from now on are not given to NVTX.
void disable() noexcept;
[[nodiscard]] bool is_enabled() noexcept;
/// Whether a tool listens; asks NVTX, which loads the tool.
[[nodiscard]] bool is_tool_attached();

/// Names a stream in tools, while NVTX is on.
void name_stream(Stream stream, std::string_view name);

}  // namespace GPUPROF_ABI
}  // namespace gpuprof::nvtx
