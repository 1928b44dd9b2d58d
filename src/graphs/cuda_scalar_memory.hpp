// Where device scalars lie: slabs of slots, and the streams that read them back.
//
// A slot is handed out once. A slab whose slots have all been handed out and let go is freed when
// another slab is needed: cuMemFree waits until the GPU has done what was queued, so that no slot
// is used for anything else while a kernel may read it, and letting go of a slot is free of driver
// calls. One such wait in 512 scalars, in the making of one. Any thread; one lock, held over no
// driver call. Memory of a context that is gone is forgotten.
#pragma once

#include <cstdint>
#include <memory>

#include "driver/cuda_table.hpp"
#include "timing/cuda_event_clock.hpp"

namespace gpuprof::graphs::scalars {

struct Slot {
  std::shared_ptr<void> memory;  // holds the slab
  CUdeviceptr address = 0;
};

// A slot in the context of `clock`. Throws driver::Error.
Slot take_slot(const driver::Table& table, timing::EventClock& clock);

// A stream of ours in the context of `clock` that nothing else is queued on. Throws driver::Error.
CUstream copy_stream(const driver::Table& table, timing::EventClock& clock);

}  // namespace gpuprof::graphs::scalars
