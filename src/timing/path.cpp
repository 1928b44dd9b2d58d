#include "timing/path.hpp"

#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "driver/error.hpp"
#include "driver/process.hpp"

namespace gpuprof::timing {
namespace {

struct Paths {
  driver::ForkMutex mutex;
  std::unordered_map<std::string, std::unique_ptr<const Path>> by_text;
};

Paths& paths() {
  static Paths& storage = *new Paths;  // never destroyed: samples point into it
  return storage;
}

}  // namespace

const Path& root_path() noexcept {
  static const Path& root = *new Path{{}, 0, {}};
  return root;
}

const Path& other_path() noexcept {
  static const Path& other = *new Path{"(other)", ~std::uint64_t{0}, "(other)"};
  return other;
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
  std::string text = parent.text;
  if (!text.empty()) text += '/';
  text += name;
  text = shortened_path(std::move(text));
  auto& p = paths();
  {
    const std::lock_guard lock(p.mutex);
    if (const auto found = p.by_text.find(text); found != p.by_text.end()) return *found->second;
    if (p.by_text.size() < kMaxPaths) {
      auto path = std::make_unique<const Path>(
          Path{text, p.by_text.size(), shortened_path(std::string(name))});
      return *p.by_text.emplace(std::move(text), std::move(path)).first->second;
    }
  }
  driver::warn_once(driver::Warning::kPathsFull,
                    "more than 10000 different timer paths; the rest share the row '(other)'. Put "
                    "what varies into fewer names");
  return other_path();
}

}  // namespace gpuprof::timing
