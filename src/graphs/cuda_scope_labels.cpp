// What a Capture tells its ScopeLabels.
#include <utility>

#include "driver/cuda_thread_state.hpp"
#include "graphs/capture.hpp"
#include "graphs/cuda_handles.hpp"
#include "timing/cuda_contexts.hpp"
#include "timing/cuda_event_clock.hpp"

namespace gpuprof::graphs {

using driver::Table;
using timing::contexts::as_stream;

// Where the stream is in this capture, and the capture's graph. Null if the stream is in none, or
// in another one.
void* Capture::locate(std::uintptr_t stream, CapturePosition& at) const {
  if (!clock_->check_alive()) return nullptr;
  const Table& table = driver::ready();
  const driver::CurrentContext current(table, timing::contexts::to_push(stream_, *clock_));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* frontier = nullptr;
  std::size_t count = 0;
  const auto ask = [&](const CUgraphNode** nodes, std::size_t* nodes_count) {
    return table.cuStreamGetCaptureInfo(as_stream(stream), &status, &id, &graph, nodes,
                                        nodes_count) == CUDA_SUCCESS;
  };
  // The driver refuses to list programmatic dependencies without their kind.
  const bool has_frontier = ask(&frontier, &count);
  if (!has_frontier && !ask(nullptr, nullptr)) return nullptr;
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE || id != id_) return nullptr;
  at.stream = stream;
  if (has_frontier) at.frontier.assign(frontier, frontier + count);
  return table.cuGraphGetNodes(graph, nullptr, &at.nodes) == CUDA_SUCCESS ? graph : nullptr;
}

void Capture::note_scope(const timing::Sample& sample, std::uintptr_t stream,
                         bool is_entered) noexcept {
  try {
    CapturePosition at;
    if (sample.path == nullptr || locate(stream, at) == nullptr) return;
    const auto note = is_entered ? &ScopeLabels::enter : &ScopeLabels::leave;
    const std::lock_guard lock(labels_mutex_);
    (labels_.*note)(&sample, *sample.path, std::move(at));
  } catch (...) {  // out of memory
  }
}

// As long as the capture is open: torch ends its own, and does not always tell the graph then.
NodeLabels Capture::label_nodes() noexcept {
  try {
    if (!clock_->check_alive()) return {};
    {
      const std::lock_guard lock(labels_mutex_);
      if (labels_.empty()) return {};
    }
    CapturePosition at;
    void* const graph = locate(stream_, at);
    if (graph == nullptr) return {};
    const Table& table = driver::ready();
    const std::vector<CUgraphNode> handles = nodes_of(table, as_graph(graph));
    const std::vector<Edge> all_edges = edges(graph);
    const std::lock_guard lock(labels_mutex_);
    labels_.note(std::move(at));
    return labels_.resolve({handles.begin(), handles.end()}, all_edges);
  } catch (...) {  // out of memory, or the capture broke: there is nothing to label
    return {};
  }
}

}  // namespace gpuprof::graphs
