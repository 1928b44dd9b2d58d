#include "timing/thread_nesting.hpp"

#include <mutex>

namespace gpuprof::timing {

struct NestingOfThread {
  NestingOfThread() : nesting(*new ThreadNesting) {}
  NestingOfThread(const NestingOfThread&) = delete;
  NestingOfThread& operator=(const NestingOfThread&) = delete;
  ~NestingOfThread() { nesting.let_go(); }
  ThreadNesting& nesting;
};

ThreadNesting& ThreadNesting::of_this_thread() {
  thread_local const NestingOfThread own;
  return own.nesting;
}

const Path& ThreadNesting::below(const Path& parent, std::string_view name) {
  const auto mixed = (reinterpret_cast<std::uintptr_t>(name.data()) >> 3U) ^
                     (reinterpret_cast<std::uintptr_t>(&parent) >> 5U);
  Known& known = known_[mixed % kKnown];
  if (known.parent != &parent || known.path->name != name) {
    known.path = &path_below(parent, name);
    known.parent = &parent;
  }
  return *known.path;
}

ThreadNesting::Place ThreadNesting::enter(const void* owner, Sample* sample,
                                          std::string_view name) {
  const std::lock_guard lock(lock_);
  const Path& path = below(open_.path(), name);
  const std::size_t depth = open_.size();
  open_.push({owner, sample, &path, nullptr, false});
  holders_.fetch_add(1, std::memory_order_relaxed);
  return {&path, depth};
}

ThreadNesting::Place ThreadNesting::here() {
  ThreadNesting& own = of_this_thread();
  const std::lock_guard lock(own.lock_);
  return {&own.open_.path(), own.open_.size()};
}

void ThreadNesting::leave(const void* owner) noexcept {
  {
    const std::lock_guard lock(lock_);
    const auto& entries = open_.entries();
    for (std::size_t i = entries.size(); i-- > 0;) {
      if (entries[i].owner != owner) continue;
      open_.remove(i);
      break;
    }
  }
  let_go();
}

}  // namespace gpuprof::timing
