// What the files of this library share: the driver's types, and how its functions are found.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <ctime>

namespace raw {

using Handle = void*;
using Code = int;

constexpr Code kSuccess = 0;
constexpr Code kUnresolved = 500;

template <typename Function>
bool resolve(Handle library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

inline std::int64_t now_ns() {
  timespec at{};
  clock_gettime(CLOCK_MONOTONIC, &at);
  return std::int64_t{at.tv_sec} * 1'000'000'000 + at.tv_nsec;
}

}  // namespace raw
