// What was let go of on any thread, until a thread comes by that may destroy it.
//
// A Node has a `next` of its own type. push() takes no lock and runs no destructor, so it may be
// called under somebody's lock.
#pragma once

#include <atomic>
#include <utility>

#include "driver/cuda_thread_state.hpp"

namespace gpuprof::graphs {

template <typename Node>
class ReleasedList {
 public:
  void push(Node* node) noexcept {
    node->next = newest_.load(std::memory_order_relaxed);
    while (!newest_.compare_exchange_weak(node->next, node, std::memory_order_release,
                                          std::memory_order_relaxed)) {
    }
  }

  [[nodiscard]] bool empty() const noexcept {
    return newest_.load(std::memory_order_relaxed) == nullptr;
  }

  // Destroys what was let go of, the earliest first, after drop(node), which may run destructors of
  // any kind. Cheap where there is nothing.
  template <typename Drop>
  void drain(Drop&& drop) {
    if (empty()) return;
    const driver::RelaxedCapture relaxed;  // a capture may be open
    Node* newest = newest_.exchange(nullptr, std::memory_order_acquire);
    Node* oldest = nullptr;
    while (newest != nullptr) {
      Node* next = std::exchange(newest->next, oldest);
      oldest = std::exchange(newest, next);
    }
    while (oldest != nullptr) {
      drop(*oldest);
      delete std::exchange(oldest, oldest->next);
    }
  }

 private:
  std::atomic<Node*> newest_{nullptr};
};

}  // namespace gpuprof::graphs
