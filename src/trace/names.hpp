// Names of threads, streams and devices in traces.
//
// Any thread. At most kMaxNames of a kind; more have no name. Texts are UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpuprof::trace {

inline constexpr std::size_t kMaxNames = 10'000;

// Identifies a stream: by the driver's unique number, or where that is 0 by its handle, which may
// be reused.
constexpr std::uint64_t stream_key(std::uintptr_t handle, std::uint64_t number) noexcept {
  return number != 0 ? number : (std::uint64_t{1} << 63U) | handle;
}

// The newest name wins.
void name_thread(std::uint32_t tid, const std::string& name) noexcept;
void name_stream(int device, std::uint64_t key, const std::string& name) noexcept;
void name_device(int device, const std::string& name) noexcept;

// Empty where there is none.
std::string thread_name(std::uint32_t tid);
std::string stream_name(int device, std::uint64_t key);
std::string device_name(int device);

}  // namespace gpuprof::trace
