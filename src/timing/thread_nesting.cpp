#include "timing/thread_nesting.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "driver/process.hpp"

namespace gpuprof::timing {

namespace {

// Plain, because a destructor that runs after the one below may ask for them.
thread_local ThreadNesting* own = nullptr;
thread_local bool ended = false;

}  // namespace

void ThreadNesting::end_thread() noexcept {
  ended = true;
  std::exchange(own, nullptr)->let_go();
}

ThreadNesting* ThreadNesting::of_this_thread() {
  if (own != nullptr || ended) return own;
  own = new ThreadNesting;
  thread_local const driver::AtThreadEnd<end_thread> end;
  return own;
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

std::uint16_t ThreadNesting::depth() const noexcept {
  return static_cast<std::uint16_t>(std::min<std::size_t>(open_.size(), UINT16_MAX - 1));
}

ThreadNesting::Place ThreadNesting::enter(const void* owner, Sample* sample,
                                          std::string_view name) {
  const std::lock_guard lock(lock_);
  const Path& path = below(open_.path(), name);
  const std::uint16_t around = depth();
  NestingEntry& entry = open_.push();
  entry.owner = owner;
  entry.sample = sample;
  entry.inside = &path;
  holders_.fetch_add(1, std::memory_order_relaxed);
  return {&path, around};
}

ThreadNesting::Place ThreadNesting::here() {
  ThreadNesting* const nesting = of_this_thread();
  if (nesting == nullptr) return {&root_path(), 0};
  const std::lock_guard lock(nesting->lock_);
  return {&nesting->open_.path(), nesting->depth()};
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
