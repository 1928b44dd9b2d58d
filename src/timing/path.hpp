// Names of nested scopes, `step/fwd`, and which scopes are open.
//
// A Path is a name inside a parent. There is one for each different pair, alive as long as the
// process, so paths are compared by pointer. A `/` in a name is part of that name: two paths may
// have the same text. At most kMaxPaths exist; the rest share one row, `(other)`. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "timing/budget.hpp"

namespace gpuprof::timing {

inline constexpr std::size_t kMaxPaths = 10000;
inline constexpr std::size_t kMaxPathBytes = 4096;

struct Path {
  std::string text;         // to show: the names joined by '/', UTF-8, at most kMaxPathBytes
  std::uint64_t order;      // of the first entry, counting from 0
  std::string name;         // the last scope's, at most kMaxPathBytes; empty for the root
  const Path* parent;       // null for the root
  mutable Visits visits{};  // where a budget says which are measured: under the interpreter lock
};

// The path and its parents, outermost first, without the root.
std::vector<const Path*> lineage(const Path& path);

// Where a thread or a task starts.
const Path& root_path() noexcept;

// The row of all paths past kMaxPaths.
const Path& other_path() noexcept;

// The path of `name` inside `parent`. Past kMaxPaths: other_path(), with one warning. A name or
// text longer than kMaxPathBytes is cut and ends in a digest of the whole, so that different names
// stay different.
const Path& path_below(const Path& parent, std::string_view name);

// A text as a path holds it: cut, with a digest, where it is too long.
std::string shortened_path(std::string text);

// Remembers path_below() for the last parent: a scope is nearly always entered below the same one.
// The caller serialises calls.
class PathCache {
 public:
  explicit PathCache(std::string name) : name_(std::move(name)) {}
  const Path& below(const Path& parent) {
    if (&parent != parent_) {
      path_ = &path_below(parent, name_);
      parent_ = &parent;
    }
    return *path_;
  }

 private:
  std::string name_;
  const Path* parent_ = nullptr;
  const Path* path_ = nullptr;
};

struct Sample;

// One open scope.
struct NestingEntry {
  const void* owner = nullptr;   // the scope
  Sample* sample = nullptr;      // the entry owns one reference
  const Path* inside = nullptr;  // the parent path of scopes entered inside this one
  const void* frame = nullptr;   // tells entries apart where the owner is open more than once
  bool frame_may_suspend = false;
  std::uint32_t left_out_in = 0;  // the budget's epoch, where that left it out
  Visit visit{};
};

// The open scopes of a thread, or of a task within one, innermost last; the bindings decide which.
//
// Scopes usually close in reverse order. Generators interleave them, so an entry is removed
// wherever it stands and the others keep their paths. Not thread safe: the caller serialises.
class Nesting {
 public:
  [[nodiscard]] const Path& path() const noexcept {
    return entries_.empty() ? root_path() : *entries_.back().inside;
  }
  // What the innermost one says for visits inside it.
  [[nodiscard]] Visit visit() const noexcept {
    return entries_.empty() ? Visit{} : entries_.back().visit;
  }
  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  [[nodiscard]] const std::vector<NestingEntry>& entries() const noexcept { return entries_; }

  // To be filled in place: a copy costs more than all else here.
  NestingEntry& push() { return entries_.emplace_back(); }
  void remove(std::size_t index) {
    if (index + 1 == entries_.size()) {
      entries_.pop_back();
    } else {
      entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(index));
    }
  }

 private:
  std::vector<NestingEntry> entries_;
};

}  // namespace gpuprof::timing
