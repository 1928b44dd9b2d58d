#include "api/kept_objects.hpp"

#include <utility>

#include "graphs/capture.hpp"
#include "graphs/released_list.hpp"

namespace gpuprof::api {
namespace {

struct Kept {
  std::vector<std::shared_ptr<const void>> objects;
  Kept* next = nullptr;
};

graphs::ReleasedList<Kept> released_objects;

void release_objects(void* bundle) { released_objects.push(static_cast<Kept*>(bundle)); }

}  // namespace

graphs::Payload keep_objects(std::vector<std::shared_ptr<const void>> objects) {
  if (objects.empty()) return {};
  auto kept = std::make_unique<Kept>();
  kept->objects = std::move(objects);
  return {kept.release(), &release_objects};
}

void drain_kept_objects() noexcept {
  graphs::release_finished();
  if (released_objects.empty()) return;
  const graphs::RelaxedThread relaxed;  // a capture may be open, and what is dropped of any kind
  Kept* oldest = released_objects.take();
  while (oldest != nullptr) {
    for (std::shared_ptr<const void>& object : oldest->objects) object.reset();
    Kept* next = oldest->next;
    delete oldest;
    oldest = next;
  }
}

}  // namespace gpuprof::api
