#include "bindings/graphs_kept.hpp"

#include <atomic>
#include <memory>
#include <vector>

#include "graphs/capture.hpp"
#include "graphs/captured_graph.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

struct Kept {
  std::vector<PyObject*> objects;
  Kept* next = nullptr;
};

namespace {

std::atomic<Kept*> released{nullptr};

}  // namespace

Kept* make_kept(const py::tuple& objects) {
  auto kept = std::make_unique<Kept>();
  kept->objects.reserve(objects.size());
  for (const py::handle object : objects) {
    kept->objects.push_back(object.ptr());
    Py_INCREF(object.ptr());
  }
  return kept.release();
}

void release_kept(void* bundle) {
  auto* kept = static_cast<Kept*>(bundle);
  Kept* before = released.load();
  do {
    kept->next = before;
  } while (!released.compare_exchange_weak(before, kept));
}

void drain_kept() {
  graphs::release_finished();
  if (released.load() == nullptr) return;
  const graphs::RelaxedThread relaxed;  // a capture may be open, and what is dropped of any kind
  Kept* newest = released.exchange(nullptr);
  Kept* oldest = nullptr;
  while (newest != nullptr) {
    Kept* next = newest->next;
    newest->next = oldest;
    oldest = newest;
    newest = next;
  }
  while (oldest != nullptr) {
    for (PyObject* object : oldest->objects) Py_DECREF(object);
    Kept* next = oldest->next;
    delete oldest;
    oldest = next;
  }
}

void drain_kept_soon() noexcept {
  graphs::release_finished();
  if (released.load() == nullptr) return;
  // Refused where many calls wait already: the next drain finds the same.
  Py_AddPendingCall(
      [](void* /*unused*/) {
        drain_kept();
        return 0;
      },
      nullptr);
}

}  // namespace gpuprof::bindings
