// What the environment decided once, when the package was imported. Written then, read ever after,
// with the interpreter lock.
#pragma once

namespace gpuprof::bindings {

struct Switches {
  bool disabled_for_good = false;  // GPUPROF_DISABLE
  bool release_gil = false;        // GPUPROF_RELEASE_GIL
};
inline Switches switches;

}  // namespace gpuprof::bindings
