// What threads, streams and devices are called in traces.
//
// Any thread. Bounded: past kMaxNames of a kind, new ones have no name. Texts are UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpuprof::trace {

inline constexpr std::size_t kMaxNames = 10'000;

// The newest name wins.
void name_thread(std::uint32_t tid, const std::string& name) noexcept;
void name_stream(int device, std::uintptr_t stream, const std::string& name) noexcept;
void name_device(int device, const std::string& name) noexcept;

// Empty where there is none.
std::string thread_name(std::uint32_t tid);
std::string stream_name(int device, std::uintptr_t stream);
std::string device_name(int device);

}  // namespace gpuprof::trace
