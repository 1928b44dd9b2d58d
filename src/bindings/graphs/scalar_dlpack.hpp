// One number in device memory as a DLPack capsule.
//
// The capsule keeps `memory` until its consumer is done; that may drop it on any thread, without
// the interpreter lock. All functions need the lock. The structures are those of DLPack's C ABI.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>

#include "bindings/interop/scalar_value.hpp"

namespace gpuprof::bindings {

struct DlpackScalar {
  const ScalarFormat& format;
  std::uint64_t address;
  int ordinal;
  std::shared_ptr<void> memory;
};

// `versioned`: the form with a version in it, for consumers that ask for 1.0 or later.
pybind11::capsule dlpack_capsule(const DlpackScalar& scalar, bool versioned);

}  // namespace gpuprof::bindings
