// Which scopes are open in one flow of control, innermost last.
//
// A flow is a thread, or a task within one; the bindings decide which. Scopes usually close in the
// order in which they opened, but generators interleave them, so an entry is taken out wherever it
// stands and the others keep their paths. Not thread safe: the caller serialises.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "timing/path.hpp"
#include "timing/sample.hpp"

namespace gpuprof::timing {

struct NestingEntry {
  const void* owner;   // the scope
  Sample* sample;      // one reference is the entry's
  const Path* inside;  // the path that scopes entered inside this one continue
  const void* frame;   // told apart where the owner is open more than once, else null
  bool frame_may_suspend;
  std::uint32_t place = 0;  // for the owner, among all of its entries
};

class Nesting {
 public:
  [[nodiscard]] const Path& path() const noexcept {
    return entries_.empty() ? root_path() : *entries_.back().inside;
  }
  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  [[nodiscard]] const std::vector<NestingEntry>& entries() const noexcept { return entries_; }

  void push(const NestingEntry& entry) { entries_.push_back(entry); }
  void remove(std::size_t index) {
    entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(index));
  }

 private:
  std::vector<NestingEntry> entries_;
};

}  // namespace gpuprof::timing
