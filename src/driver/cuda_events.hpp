// Calls on events, and the permission that they need.
//
// An event dies with its context, and no handle tells: after a reset the driver answers 709 or 201,
// and once the context has been made again, at the same address, it crashes. So the table keeps
// those entry points to itself, and whoever calls one needs an EventAccess: the driver may be
// called, and the context was there when it was asked. It is for the stack of one function, and is
// asked for again after everything that waits. Nobody can tell of a reset that another thread makes
// between the question and the call.
#pragma once

#include <optional>

#include "driver/cuda_table.hpp"

namespace gpuprof::driver {

class EventAccess {
 public:
  // To the events that were made while `context` was the one with number `id`. Empty where the
  // context is gone, and while something is in `blocked`. One cheap driver call, on no event. A
  // driver that fails to tell has not said that the context is gone.
  static std::optional<EventAccess> ask(const Table& table, CUcontext context,
                                        unsigned long long id) noexcept {
    if (blocked.load(std::memory_order_relaxed) != 0) return {};
    unsigned long long now = 0;
    const CUresult status = table.cuCtxGetId(context, &now);
    const bool gone =
        status == CUDA_SUCCESS ? now != id : status == CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (gone) return {};
    return EventAccess(table);
  }

  CUresult record(CUevent event, CUstream stream) const noexcept {
    return table_->cuEventRecord(event, stream);
  }
  // As a node of the graph that is being captured.
  CUresult record_in_graph(CUevent event, CUstream stream) const noexcept {
    return table_->cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL);
  }
  CUresult query(CUevent event) const noexcept { return table_->cuEventQuery(event); }
  CUresult elapsed(float& ms, CUevent start, CUevent end) const noexcept {
    return table_->cuEventElapsedTime(&ms, start, end);
  }
  CUresult let_wait(CUstream stream, CUevent event) const noexcept {
    return table_->cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_DEFAULT);
  }
  CUresult point_node(CUgraphExec exec, CUgraphNode node, CUevent event) const noexcept {
    return table_->cuGraphExecEventRecordNodeSetEvent(exec, node, event);
  }
  CUresult destroy(CUevent event) const noexcept { return table_->cuEventDestroy(event); }

 private:
  explicit EventAccess(const Table& table) noexcept : table_(&table) {}

  const Table* table_;
};

}  // namespace gpuprof::driver
