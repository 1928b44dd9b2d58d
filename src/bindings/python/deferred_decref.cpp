#include "bindings/python/deferred_decref.hpp"

#include <atomic>
#include <memory>
#include <vector>

#include "graphs/capture.hpp"
#include "graphs/captured_graph.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

struct KeepAlive {
  std::vector<PyObject*> objects;
  KeepAlive* next = nullptr;
};

namespace {

std::atomic<KeepAlive*> released{nullptr};

}  // namespace

KeepAlive* make_keep_alive(const py::tuple& objects) {
  auto kept = std::make_unique<KeepAlive>();
  kept->objects.reserve(objects.size());
  for (const py::handle object : objects) {
    kept->objects.push_back(object.ptr());
    Py_INCREF(object.ptr());
  }
  return kept.release();
}

void release_kept(void* bundle) {
  auto* kept = static_cast<KeepAlive*>(bundle);
  KeepAlive* before = released.load();
  do {
    kept->next = before;
  } while (!released.compare_exchange_weak(before, kept));
}

void drain_kept() {
  graphs::release_finished();
  if (released.load() == nullptr) return;
  const graphs::RelaxedThread relaxed;  // a capture may be open, and what is dropped of any kind
  KeepAlive* newest = released.exchange(nullptr);
  KeepAlive* oldest = nullptr;
  while (newest != nullptr) {
    KeepAlive* next = newest->next;
    newest->next = oldest;
    oldest = newest;
    newest = next;
  }
  while (oldest != nullptr) {
    for (PyObject* object : oldest->objects) Py_DECREF(object);
    KeepAlive* next = oldest->next;
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
