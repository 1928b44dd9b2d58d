// What a graph needs until its last launch is over.
//
// What finds that out may hold a graph's lock, or be inside another thread's call. So it only puts
// the bundle on a list, and the objects are let go by the next drain_kept_objects(): every call
// that makes, launches or closes a graph comes by.
#pragma once

#include <memory>
#include <vector>

#include "graphs/captured_graph.hpp"

namespace gpuprof::api {

// A payload for CapturedGraph::retain() that keeps these objects; no payload for none of them. They
// are dropped in their order.
[[nodiscard]] graphs::Payload keep_objects(std::vector<std::shared_ptr<const void>> objects);

// Looks which replays are over, and lets go of what was released, the earliest first. Cheap where
// there is nothing. Runs deleters of any kind, without a lock, with this thread in relaxed capture
// mode.
void drain_kept_objects() noexcept;

}  // namespace gpuprof::api
