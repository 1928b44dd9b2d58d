// Memory of device scalars: slabs of 512 slots.
//
// A slot is used once. A slab whose slots were all used and released is freed when another slab is
// needed: cuMemFree waits for the GPU, so no kernel can read a slot that was freed, and releasing a
// slot needs no driver call. So one scalar in 512 waits when it is made. Any thread; one lock, held
// over no driver call. Memory of a context that is gone is forgotten.
#pragma once

#include <cstdint>
#include <memory>

#include "driver/cuda_table.hpp"
#include "timing/cuda_event_clock.hpp"

namespace gpuprof::graphs {

// The device address of a slot in the context of `clock`. Holds the slab. Throws driver::Error.
std::shared_ptr<void> take_slot(const driver::Table& table, timing::EventClock& clock);

}  // namespace gpuprof::graphs
