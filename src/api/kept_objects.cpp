#include "api/kept_objects.hpp"

#include <atomic>
#include <utility>

#include "graphs/capture.hpp"

namespace gpuprof::api {
namespace {

struct Kept {
  std::vector<std::shared_ptr<const void>> objects;
  Kept* next = nullptr;
};

std::atomic<Kept*> released_objects{nullptr};

void release_objects(void* bundle) {
  auto* kept = static_cast<Kept*>(bundle);
  kept->next = released_objects.load(std::memory_order_relaxed);
  while (!released_objects.compare_exchange_weak(kept->next, kept, std::memory_order_release,
                                                 std::memory_order_relaxed)) {
  }
}

}  // namespace

graphs::Payload keep_objects(std::vector<std::shared_ptr<const void>> objects) {
  if (objects.empty()) return {};
  auto kept = std::make_unique<Kept>();
  kept->objects = std::move(objects);
  return {kept.release(), &release_objects};
}

void drain_kept_objects() noexcept {
  graphs::release_finished();
  if (released_objects.load(std::memory_order_relaxed) == nullptr) return;
  const graphs::RelaxedThread relaxed;  // a capture may be open, and what is dropped of any kind
  Kept* newest = released_objects.exchange(nullptr, std::memory_order_acquire);
  Kept* oldest = nullptr;
  while (newest != nullptr) {
    Kept* next = newest->next;
    newest->next = oldest;
    oldest = newest;
    newest = next;
  }
  while (oldest != nullptr) {
    for (std::shared_ptr<const void>& object : oldest->objects) object.reset();
    Kept* next = oldest->next;
    delete oldest;
    oldest = next;
  }
}

}  // namespace gpuprof::api
