// Calls on events, and the check that they need.
//
// An event dies with its context, and its handle does not tell: after a reset the driver answers
// 709 or 201, and once the context is made again at the same address, it crashes. So these entry
// points are private, and a call needs an EventAccess: the driver may be called, and the context
// was alive when asked. For the stack of one function; ask again after everything that waits. A
// reset by another thread between the question and the call cannot be detected.
#pragma once

#include <optional>

#include "driver/cuda_table.hpp"

namespace gpuprof::driver {

class EventAccess {
 public:
  // Access to events that were made while `context` had the number `id`. Empty where the context is
  // gone, and while `blocked` is set. One cheap driver call. An error of that call does not count
  // as a lost context.
  static std::optional<EventAccess> ask(const Table& table, CUcontext context,
                                        unsigned long long id) noexcept {
    if (is_blocked()) return {};
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
  CUresult let_wait(CUstream stream, CUevent event,
                    unsigned flags = CU_EVENT_WAIT_DEFAULT) const noexcept {
    return table_->cuStreamWaitEvent(stream, event, flags);
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
