#include "bindings/python/keep_alive.hpp"

#include <optional>
#include <string_view>

#include "bindings/python/gil.hpp"
#include "driver/cuda_thread_state.hpp"
#include "driver/process.hpp"
#include "graphs/released_list.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

struct KeepAlive {
  PyObject* objects;  // a tuple; owned
  KeepAlive* next = nullptr;
};

graphs::ReleasedList<KeepAlive> released;

void release_kept(void* bundle) { released.push(static_cast<KeepAlive*>(bundle)); }

void drop_released() {
  released.drain([](const KeepAlive& bundle) { Py_DECREF(bundle.objects); });
}

bool installed = false;
bool collecting = false;
std::optional<driver::RelaxedCapture> relaxed;  // of the thread that collects

void on_collection(std::string_view phase, const py::object& /*info*/) {
  collecting = phase == "start";
  if (!collecting) {
    relaxed.reset();
  } else if (relaxed_collections_wanted > 0) {
    relaxed.emplace();
  }
}

PyObject* collection_callback() {
  static PyObject* function = py::cpp_function(&on_collection).release().ptr();
  return function;
}

PyObject* callbacks() {
  static PyObject* list = py::object(py::module_::import("gc").attr("callbacks")).release().ptr();
  return list;
}

void install() {
  if (installed) return;
  if (PyList_Append(callbacks(), collection_callback()) != 0) throw py::error_already_set();
  installed = true;
}

// Not inside a collection, which goes through the list.
void uninstall() noexcept {
  if (!installed || collecting) return;
  PyObject* list = callbacks();
  for (Py_ssize_t i = PyList_GET_SIZE(list) - 1; i >= 0; --i) {
    if (PyList_GET_ITEM(list, i) == collection_callback()) PySequence_DelItem(list, i);
  }
  PyErr_Clear();
  installed = false;
}

}  // namespace

graphs::Payload keep_alive(const py::tuple& objects) {
  if (objects.empty()) return {};
  return {new KeepAlive{Py_NewRef(objects.ptr())}, {&release_kept}};
}

void drain_kept() {
  if (graphs::any_deferred.load(std::memory_order_acquire)) without_gil(&graphs::release_finished);
  drop_released();
}

void drain_kept_soon() noexcept {
  if (released.empty()) return;
  // Refused where many calls wait already: the next drain finds the same.
  Py_AddPendingCall(
      [](void* /*unused*/) {
        drop_released();
        return 0;
      },
      nullptr);
}

void RelaxedCollections::begin() {
  if (asked_) return;
  install();
  asked_ = true;
  generation_ = driver::fork_generation();
  ++relaxed_collections_wanted;
}

void RelaxedCollections::end() noexcept {
  if (!asked_) return;
  asked_ = false;
  if (generation_ != driver::fork_generation()) return;
  if (--relaxed_collections_wanted == 0) uninstall();
}

void end_relaxed_collections() noexcept {
  if (relaxed_collections_wanted == 0) return;
  relaxed_collections_wanted = 0;
  uninstall();
}

}  // namespace gpuprof::bindings
