#include "timing/path.hpp"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "driver/error.hpp"
#include "driver/process.hpp"

namespace gpuprof::timing {
namespace {

// A parent and a name; in the map the Path's own.
using Key = std::pair<const Path*, std::string_view>;

struct KeyHash {
  std::size_t operator()(const Key& key) const noexcept {
    return std::hash<const void*>{}(key.first) ^ std::hash<std::string_view>{}(key.second);
  }
};

struct Paths {
  driver::ForkMutex mutex;
  std::unordered_map<Key, std::unique_ptr<const Path>, KeyHash> by_key;
};

Paths& paths() { return driver::immortal<Paths>(); }

const bool special_paths_fork_hook = (other_path(), true);  // a child may not make them

}  // namespace

const Path& root_path() noexcept {
  static const Path& root = *new Path{{}, 0, {}, nullptr, {}};
  return root;
}

const Path& other_path() noexcept {
  static const Path& other = *new Path{"(other)", ~std::uint64_t{0}, "(other)", &root_path(), {}};
  return other;
}

std::vector<const Path*> lineage(const Path& path) {
  std::vector<const Path*> around;
  for (const Path* p = &path; p->parent != nullptr; p = p->parent) around.push_back(p);
  std::reverse(around.begin(), around.end());
  return around;
}

// Cuts at a character, not inside one.
std::string shortened_path(std::string text) {
  if (text.size() <= kMaxPathBytes) return text;
  char digest[32];
  const int length =
      std::snprintf(digest, sizeof digest, "...#%016zx", std::hash<std::string>{}(text));
  std::size_t keep = kMaxPathBytes - static_cast<std::size_t>(length);
  while (keep > 0 && (static_cast<unsigned char>(text[keep]) & 0xC0U) == 0x80U) --keep;
  text.resize(keep);
  return text + digest;
}

const Path& path_below(const Path& parent, std::string_view name) {
  if (&parent == &other_path()) return parent;
  std::string cut;
  if (name.size() > kMaxPathBytes) {
    cut = shortened_path(std::string(name));
    name = cut;
  }
  auto& p = paths();
  {
    const std::lock_guard lock(p.mutex);
    if (const auto found = p.by_key.find({&parent, name}); found != p.by_key.end()) {
      return *found->second;
    }
    if (p.by_key.size() < kMaxPaths) {
      std::string text = parent.text;
      if (!text.empty()) text += '/';
      text += name;
      auto path = std::make_unique<const Path>(
          Path{shortened_path(std::move(text)), p.by_key.size(), std::string(name), &parent, {}});
      const Key key{&parent, path->name};
      return *p.by_key.emplace(key, std::move(path)).first->second;
    }
  }
  driver::warn_once(driver::Warning::kPathsFull,
                    "more than 10000 different timer paths; the rest share the row '(other)'. Put "
                    "what varies into fewer names");
  return other_path();
}

}  // namespace gpuprof::timing
