// The captures of this process that are open, and the lock around what changes in them.
//
// One registry; its lock is held over no driver call. The destructor of a thread's list ends the
// captures that the thread left behind, because a global one would go on to refuse other threads'
// allocations for ever.
#pragma once

#include <memory>
#include <vector>

#include "driver/process.hpp"
#include "graphs/capture.hpp"

namespace gpuprof::graphs {

struct OpenCaptures {
  driver::ForkMutex mutex;
  std::vector<std::weak_ptr<Capture>> captures;

  static OpenCaptures& instance();

  // Enters a capture that is open now, and ends it with this thread unless it may end anywhere.
  void enter(const std::shared_ptr<Capture>& capture);
  // Takes a capture out. True if it was open until now.
  bool close(Capture& capture) noexcept;

  void set_sights(Capture& capture, CaptureProgress sights);
  CaptureProgress sights(const Capture& capture);
  bool is_open(const Capture& capture);
  void add_timer(Capture& capture, timing::Sample& sample);
  void add_events(Capture& capture, const std::shared_ptr<const timing::GraphEvents>& events);
  // Its timers and events, without a graph.
  CapturedParts take_parts(Capture& capture);
};

}  // namespace gpuprof::graphs
