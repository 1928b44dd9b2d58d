// The interpreter lock around a record: held, because letting it go costs milliseconds beside a
// busy Python thread; let go where the stream's queue was full the last time, or where the program
// asked for it with GPUPROF_RELEASE_GIL.
#pragma once

#include <cstdint>

#include "bindings/python/gil.hpp"
#include "bindings/python/switches.hpp"
#include "timing/slow_streams.hpp"

namespace gpuprof::bindings {

template <typename Work>
void on_stream(std::uintptr_t stream, Work&& work) {
  if (switches.release_gil || timing::device::is_slow(stream)) {
    without_gil(work);
  } else {
    work();
  }
}

}  // namespace gpuprof::bindings
