// The event after a launch: asked when what the launch needs can go, and waited for by others.
//
// Shared by the graph, by the afterlife of what it kept, and by LaunchOrder. Without timing. Holds
// the clock of its context, so that this is not let go meanwhile. Making it throws driver::Error;
// the destructor never throws, and does nothing in a forked child or in a dead context. It may be
// destroyed before it is reached on the GPU.
#pragma once

#include <cstdint>
#include <memory>

#include "driver/cuda_thread_state.hpp"
#include "timing/cuda_event_clock.hpp"

namespace gpuprof::graphs {

struct LaunchEvent {
  explicit LaunchEvent(timing::EventClock& of) : clock(of), generation(driver::fork_generation()) {
    const driver::Table& table = driver::ready();
    const driver::CurrentContext current(table, clock.context());
    const CUresult status = table.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (status != CUDA_SUCCESS) {
      const driver::Error error = driver::error_of(status, "cuEventCreate");
      if (const auto access = clock.try_access(); access && event != nullptr) {
        access->destroy(event);
      }
      throw error;
    }
    clock.hold();
  }
  LaunchEvent(const LaunchEvent&) = delete;
  LaunchEvent& operator=(const LaunchEvent&) = delete;
  ~LaunchEvent() {
    if (generation != driver::fork_generation()) return;
    if (const auto access = clock.try_access()) {
      const driver::RelaxedCapture relaxed(*driver::loaded_or_null());
      access->destroy(event);
    }
    clock.let_go();
  }

  CUevent event = nullptr;
  timing::EventClock& clock;
  const std::uint32_t generation;
};

}  // namespace gpuprof::graphs
