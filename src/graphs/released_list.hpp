// What was let go of on any thread, until a thread comes by that may destroy it.
//
// A Node has a `next` of its own type. push() takes no lock and runs no destructor, so it may be
// called under somebody's lock. The caller of take() owns what it returns.
#pragma once

#include <atomic>

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

  // All of it, the earliest first, linked by `next`; null for nothing.
  [[nodiscard]] Node* take() noexcept {
    Node* newest = newest_.exchange(nullptr, std::memory_order_acquire);
    Node* oldest = nullptr;
    while (newest != nullptr) {
      Node* next = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = next;
    }
    return oldest;
  }

 private:
  std::atomic<Node*> newest_{nullptr};
};

}  // namespace gpuprof::graphs
