// Names of nested scopes: `step/fwd`.
//
// A Path is a name inside a parent. It is made once for each different pair and lives as long as
// the process, so that a pointer to it is its identity. A `/` in a name is part of that name: two
// paths may have the same text. At most kMaxPaths exist; what comes after shares one row,
// `(other)`. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpuprof::timing {

inline constexpr std::size_t kMaxPaths = 10000;
inline constexpr std::size_t kMaxPathBytes = 4096;

struct Path {
  std::string text;     // for people: the names joined by '/', UTF-8, at most kMaxPathBytes
  std::uint64_t order;  // when it was first entered, counting from 0
  std::string name;     // the last scope's, at most kMaxPathBytes; empty for the root
  const Path* parent;   // null for the root
};

// The path and those around it, outermost first, without the root.
std::vector<const Path*> lineage(const Path& path);

// Where a thread or a task starts.
const Path& root_path() noexcept;

// The row that takes the overflow.
const Path& other_path() noexcept;

// The path of `name` inside `parent`. A name or text longer than kMaxPathBytes is cut and ends in a
// digest of the whole, so that different ones stay different. Past kMaxPaths: other_path(), with
// one warning.
const Path& path_below(const Path& parent, std::string_view name);

// A text as a path holds it: cut, with a digest, if it is too long.
std::string shortened_path(std::string text);

// Remembers the answer of path_below() for the parent seen last: a scope has one, because it is
// nearly always entered below the same parent. The caller serialises calls.
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
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  std::string name_;
  const Path* parent_ = nullptr;
  const Path* path_ = nullptr;
};

}  // namespace gpuprof::timing
