// The stacks in which one scope is open, an entry for each time, oldest first.
//
// A list in a vector: an entry is found by the place that it was given, and taken out wherever it
// stands, at the same cost however many there are. Needs the interpreter lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bindings/ranges/scope_stack.hpp"

namespace gpuprof::bindings {

class OpenScopeStacks {
 public:
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  // The one added last. There must be one.
  [[nodiscard]] ScopeStack& newest() const noexcept { return *links_[newest_].stack; }

  // Returns its place. Throws std::bad_alloc.
  std::uint32_t add(ScopeStack& stack) {
    std::uint32_t place = free_;
    if (place != kNone) {
      free_ = links_[place].before;
    } else {
      place = static_cast<std::uint32_t>(links_.size());
      links_.emplace_back();
    }
    links_[place] = {&stack, newest_, kNone};
    if (newest_ != kNone) links_[newest_].after = place;
    newest_ = place;
    ++size_;
    return place;
  }

  void remove(std::uint32_t place) noexcept {
    const Link link = links_[place];
    if (link.before != kNone) links_[link.before].after = link.after;
    (link.after != kNone ? links_[link.after].before : newest_) = link.before;
    links_[place].before = free_;
    free_ = place;
    --size_;
  }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Link {
    ScopeStack* stack = nullptr;
    std::uint32_t before = kNone;  // the older one; of a place that is free, the next free one
    std::uint32_t after = kNone;
  };
  std::vector<Link> links_;
  std::uint32_t newest_ = kNone;
  std::uint32_t free_ = kNone;
  std::size_t size_ = 0;
};

}  // namespace gpuprof::bindings
