// Whose turn it is among graphs that share memory: one runs at a time, in the order of the calls.
//
// Made with std::make_shared and given to each CapturedGraph that takes part; a graph without a
// given one has its own. It is their lock, and knows on which stream the last of them ran and the
// event after it, for which a launch on another stream waits on the GPU. The event may outlive its
// graph. Launches and notes of use are the graph's; others only make and keep the object. Any
// thread. In a forked child it is of no use, and does nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

namespace gpuprof::graphs {

struct LaunchEvent;

class LaunchOrder {
 public:
  LaunchOrder() = default;
  LaunchOrder(const LaunchOrder&) = delete;
  LaunchOrder& operator=(const LaunchOrder&) = delete;

  // How many launches of theirs there were.
  [[nodiscard]] std::uint64_t launches() const noexcept {
    return launches_.load(std::memory_order_relaxed);
  }

 private:
  friend class CapturedGraph;

  // A launch that a framework makes holds this from its first half to its second, and a turn that
  // is kept until it is given back. On one thread, which may launch other graphs meanwhile; nobody
  // else may. Taken before `mutex_`.
  std::recursive_mutex held_;
  std::mutex mutex_;  // of what follows, and of the graphs that take part
  int holds_ = 0;
  std::thread::id holder_;
  std::shared_ptr<LaunchEvent> last_;  // recorded after everything so far; null: there is nothing
  unsigned long long stream_id_ = 0;   // on this stream; 0: not known
  bool is_use_ = false;                // it is after work that was noted, else after a launch
  bool lost_track_ = false;            // its record failed
  std::atomic<std::uint64_t> launches_{0};  // written with the lock held
};

}  // namespace gpuprof::graphs
