#include "bindings/callable/cache_entry.hpp"

#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "bindings/bind.hpp"
#include "bindings/graphs/launch.hpp"
#include "bindings/python/context_manager.hpp"
#include "bindings/python/errors.hpp"
#include "graphs/capture.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using graphs::LaunchResult;

namespace {

DlDataType dtype_of(py::handle described) {
  const auto parts = py::cast<py::tuple>(described);
  return {parts[0].cast<std::uint8_t>(), parts[1].cast<std::uint8_t>(),
          parts[2].cast<std::uint16_t>()};
}

py::object get(const py::dict& described, const char* name) {
  if (!described.contains(name)) throw py::key_error(name);
  return described[name];
}

// Of what tells a current stream, whose reference this takes: torch gives the handle, CuPy a
// stream.
std::uintptr_t take_handle(PyObject* current) {
  static PyObject* const name = PyUnicode_InternFromString("ptr");
  PyObject* number = current;
  if (current != nullptr && PyLong_Check(current) == 0) {
    number = PyObject_GetAttr(current, name);
    Py_DECREF(current);
  }
  if (number == nullptr) throw py::error_already_set();
  void* handle = PyLong_AsVoidPtr(number);
  Py_DECREF(number);
  if (handle == nullptr && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return reinterpret_cast<std::uintptr_t>(handle);
}

}  // namespace

void CallBuffers::let_go() {
  release_arrays(arrays);
  for (PyObject* object : owned) Py_DECREF(object);
  owned.clear();
  results.clear();
  outside.clear();
}

// One call, step by step.
class CacheEntry::Run {
 public:
  Run(CacheEntry& entry, CallBuffers& scratch)
      : entry_(entry),
        arrays_(scratch.arrays),
        outside_(scratch.outside),
        results_(scratch.results),
        owned_(scratch.owned) {}

  PyObject* operator()() {
    const CurrentStream on = entry_.stream();
    if (is_staged() && is_captured(on)) return nullptr;
    point();
    bool launched = false;
    try {
      launched = launch(on);
      if (launched && finish()) note_graph_use(entry_.graph_.ptr(), on);
    } catch (const std::exception&) {  // not (...): a thread that ends at exit must unwind on
      let_others_launch();
      throw;
    }
    let_others_launch();
    if (!launched) return nullptr;
    ++entry_.runs_;
    for (const std::size_t index : entry_.back_) call(entry_.wrote_, index, arrays_[index].object);
    return entry_.build(results_);
  }

 private:
  PyObject* own(PyObject* object) {
    if (object == nullptr) throw py::error_already_set();
    owned_.push_back(object);  // let go by whoever has the scratch
    return object;
  }

  [[nodiscard]] bool is_staged() const {
    return std::any_of(entry_.in_.begin(), entry_.in_.end(),
                       [this](std::size_t index) { return !arrays_[index].fits; });
  }

  // Asked before anything is enqueued, which would become part of that capture; otherwise the
  // launch finds it out. The legacy default stream cannot be captured.
  static bool is_captured(const CurrentStream& on) {
    return on.handle != 0 &&
           graphs::status_of(on.handle, on.ordinal) != graphs::CaptureStatus::kNone;
  }

  void point() {
    for (const std::size_t index : entry_.in_) {
      outside_.push_back(arrays_[index].fits ? arrays_[index].address : stage(index));
    }
    for (const Result& result : entry_.results_) {
      results_.push_back(result.make.is_none()
                             ? result.like.ptr()
                             : own(PyObject_CallOneArg(result.make.ptr(), result.like.ptr())));
    }
    for (const std::size_t index : entry_.out_) outside_.push_back(address_of(results_[index]));
    for (const std::size_t index : entry_.back_) {
      outside_.push_back(arrays_[index].fits ? arrays_[index].address : 0);
    }
  }

  std::uintptr_t stage(std::size_t index) {
    PyObject* number = PyLong_FromSize_t(index);
    PyObject* staged =
        PyObject_CallFunctionObjArgs(entry_.stage_.ptr(), number, arrays_[index].object, nullptr);
    Py_XDECREF(number);
    return address_of(own(staged));
  }

  static std::uintptr_t address_of(PyObject* array) {
    ArrayFacts facts;  // NOLINT: its storage is written where it is used
    if (!read_array(array, facts)) throw py::type_error("not an array in memory");
    return facts.address;
  }

  // False where the stream is being captured.
  bool launch(const CurrentStream& on) {
    graphs::IoAddresses at{outside_.data()};
    // Each copy is refused once at most: after that it is pointed at what the graph's kind of
    // memory is, or left out.
    for (std::size_t tries = 0; tries <= outside_.size(); ++tries) {
      if (leaves_copies()) keep_turn_once();
      at.refused = -1;
      const LaunchResult done = launch_pointed(entry_.graph_.ptr(), on, at);
      if (done == LaunchResult::kLaunched) return true;
      if (done == LaunchResult::kCapturing) return false;
      avoid(static_cast<std::size_t>(at.refused));
    }
    throw_invalid_state(
        "the driver refuses to copy between this graph's arrays and those of the "
        "call, whatever memory they are in");
  }

  // Whether the array library has copies to make after the launch. Another thread's launch must not
  // come in between.
  [[nodiscard]] bool leaves_copies() const {
    const auto first = outside_.begin() + static_cast<std::ptrdiff_t>(entry_.in_.size());
    return std::find(first, outside_.end(), 0) != outside_.end();
  }

  void keep_turn_once() {
    if (keeps_turn_) return;
    keep_turn(entry_.graph_.ptr());
    keeps_turn_ = true;
  }

  void let_others_launch() {
    if (keeps_turn_) give_turn_back(entry_.graph_.ptr());
    keeps_turn_ = false;
  }

  void avoid(std::size_t copy) {
    outside_[copy] = copy < entry_.in_.size() ? stage(entry_.in_[copy]) : 0;
  }

  // What the copies have left out, by the array library. Whether there was anything.
  bool finish() {
    bool used = false;
    std::size_t copy = entry_.in_.size();
    for (const std::size_t index : entry_.out_) {
      if (outside_[copy++] == 0) used = call(entry_.fetch_, index, results_[index]);
    }
    for (const std::size_t index : entry_.back_) {
      if (outside_[copy++] == 0) used = call(entry_.put_back_, index, arrays_[index].object);
    }
    return used;
  }

  static bool call(const py::object& function, std::size_t index, PyObject* array) {
    PyObject* number = PyLong_FromSize_t(index);
    PyObject* done = PyObject_CallFunctionObjArgs(function.ptr(), number, array, nullptr);
    Py_XDECREF(number);
    if (done == nullptr) throw py::error_already_set();
    Py_DECREF(done);
    return true;
  }

  CacheEntry& entry_;
  bool keeps_turn_ = false;
  const std::vector<CallArray>& arrays_;
  std::vector<std::uintptr_t>& outside_;
  std::vector<PyObject*>& results_;
  std::vector<PyObject*>& owned_;
};

std::unique_ptr<CallBuffers> CacheEntry::take_scratch() {
  if (spare_) return std::move(spare_);
  auto scratch = std::make_unique<CallBuffers>();
  scratch->owned.reserve(results_.size() + specs_.size());
  return scratch;
}

CacheEntry::CacheEntry(const py::dict& described)
    : graph_(get(described, "graph")),
      args_(get(described, "args")),
      keywords_(get(described, "keywords")),
      in_order_(get(described, "in_order").cast<bool>()),
      stage_(get(described, "stage")),
      put_back_(get(described, "put_back")),
      fetch_(get(described, "fetch")),
      wrote_(get(described, "wrote")),
      stream_(get(described, "stream")),
      device_(get(described, "device")),
      ordinal_(device_.cast<int>()) {
  prepare_patterns();
  read_arrays(get(described, "arrays"));
  read_results(get(described, "results"));
  for (const py::handle guard : py::tuple(get(described, "probes"))) {
    const auto parts = py::cast<py::tuple>(guard);
    state_guards_.push_back({parts[0], parts[1]});
  }
  const py::tuple watch = get(described, "watch");
  guards_ = Guards(watch[0], watch[1], watch[2].cast<std::size_t>());
  for (const py::handle range : py::tuple(get(described, "taken"))) {
    const auto parts = py::cast<py::tuple>(range);
    taken_.emplace_back(parts[0].cast<std::uintptr_t>(), parts[1].cast<std::uintptr_t>());
  }
  const py::object result = get(described, "result");
  if (py::isinstance<py::tuple>(result)) {
    result_ = Pattern(result);
  } else {
    rebuild_ = result;
  }
  const py::object type = get(described, "stream_type");
  if (!type.is_none()) {
    api_ = exchange_api(reinterpret_cast<PyTypeObject*>(type.ptr()));
    if (api_ != nullptr && api_->current_stream == nullptr) api_ = nullptr;
  }
}

// Each is (types, facts of the array inside, and whether: its address is the only one there may be,
// it must not ask for a gradient, its bits may be a view, it is copied in, it is copied back).
void CacheEntry::read_arrays(const py::tuple& described) {
  types_ = py::tuple(described.size());
  std::size_t index = 0;
  for (const py::handle each : described) {
    const auto parts = py::cast<py::tuple>(each);
    const py::tuple facts = parts[1];
    ArraySpec spec;
    types_[index] = parts[0];
    for (const py::handle type : py::tuple(parts[0])) {
      spec.types.push_back(reinterpret_cast<PyTypeObject*>(type.ptr()));
    }
    spec.device = {facts[1].cast<int>(), facts[2].cast<int>()};
    spec.dtype = dtype_of(facts[3]);
    spec.shape = facts[4].cast<std::vector<std::int64_t>>();
    spec.strides = facts[5].cast<std::vector<std::int64_t>>();
    measure(spec.shape, spec.strides.data(), spec.dtype.bits, spec.first, spec.last);
    spec.in_place = parts[2].cast<bool>();
    spec.address = facts[0].cast<std::uintptr_t>();
    spec.no_gradient = parts[3].cast<bool>();
    spec.may_be_view = parts[4].cast<bool>();
    if (parts[5].cast<bool>()) in_.push_back(index);
    if (parts[6].cast<bool>()) back_.push_back(index);
    specs_.push_back(std::move(spec));
    ++index;
  }
}

// Each is (make or None, like, whether it is copied out).
void CacheEntry::read_results(const py::tuple& described) {
  for (const py::handle each : described) {
    const auto parts = py::cast<py::tuple>(each);
    const bool copied = parts[2].cast<bool>();
    if (copied) out_.push_back(results_.size());
    results_.push_back({parts[0], parts[1], copied});
  }
}

bool CacheEntry::matches(PyObject* args, PyObject* keywords, CallBuffers& scratch) const {
  auto& arrays = scratch.arrays;
  arrays.assign(specs_.size(), {});
  return args_.matches(args, specs_, arrays) &&
         keywords_.matches_keywords(keywords, in_order_, specs_, arrays) && !is_entangled(arrays);
}

bool CacheEntry::is_entangled(const std::vector<CallArray>& arrays) const {
  for (const std::size_t written : back_) {
    const CallArray& target = arrays[written];
    for (std::size_t other = 0; other < arrays.size(); ++other) {
      const CallArray& array = arrays[other];
      if (other != written && array.begin < target.end && target.begin < array.end) return true;
    }
  }
  for (const auto& [begin, end] : taken_) {
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      // An array that the graph works on in place is written to and read in the function's order.
      if (!specs_[i].in_place && arrays[i].begin < end && begin < arrays[i].end) return true;
    }
  }
  return false;
}

bool CacheEntry::state_is_as_captured() const {
  return std::all_of(state_guards_.begin(), state_guards_.end(), [](const StateGuard& guard) {
    PyObject* answer = PyObject_CallNoArgs(guard.ask.ptr());
    if (answer == nullptr) throw py::error_already_set();
    const bool same = same_value(answer, guard.expected.ptr());
    Py_DECREF(answer);
    return same;
  });
}

CurrentStream CacheEntry::stream() const {
  if (api_ != nullptr) {
    void* handle = nullptr;
    if (api_->current_stream(kDlpackCuda, ordinal_, &handle) != 0) throw py::error_already_set();
    return {reinterpret_cast<std::uintptr_t>(handle), ordinal_, true};
  }
  if (stream_.is_none()) return graph_stream(graph_.ptr());
  if (PyLong_Check(stream_.ptr()) != 0) return {stream_handle(stream_.ptr()), ordinal_, true};
  return {take_handle(PyObject_CallOneArg(stream_.ptr(), device_.ptr())), ordinal_, true};
}

PyObject* CacheEntry::build(const std::vector<PyObject*>& arrays) const {
  PyObject* result = nullptr;
  if (!rebuild_) {
    result = result_.build(arrays);
  } else {
    PyObject* list = PyList_New(0);
    for (PyObject* array : arrays) {
      if (list != nullptr && PyList_Append(list, array) != 0) Py_CLEAR(list);
    }
    if (list != nullptr) result = PyObject_CallOneArg(rebuild_.ptr(), list);
    Py_XDECREF(list);
  }
  if (result == nullptr) throw py::error_already_set();
  return result;
}

PyObject* CacheEntry::run(CallBuffers& scratch) { return Run(*this, scratch)(); }

int CacheEntry::traverse(visitproc visit, void* arg) const {
  Py_VISIT(graph_.ptr());
  Py_VISIT(types_.ptr());
  Py_VISIT(rebuild_.ptr());
  Py_VISIT(stage_.ptr());
  Py_VISIT(put_back_.ptr());
  Py_VISIT(fetch_.ptr());
  Py_VISIT(wrote_.ptr());
  Py_VISIT(stream_.ptr());
  for (const StateGuard& guard : state_guards_) {
    Py_VISIT(guard.ask.ptr());
    Py_VISIT(guard.expected.ptr());
  }
  for (const Result& result : results_) {
    Py_VISIT(result.make.ptr());
    Py_VISIT(result.like.ptr());
  }
  for (const Pattern* pattern : {&args_, &keywords_, &result_}) {
    const int stop = pattern->traverse(visit, arg);
    if (stop != 0) return stop;
  }
  return guards_.traverse(visit, arg);
}

void CacheEntry::clear() {
  guards_ = Guards();
  state_guards_.clear();
  results_.clear();
  in_.clear();
  out_.clear();
  back_.clear();
  flagged_ = true;
  rebuild_ = stage_ = put_back_ = fetch_ = wrote_ = stream_ = py::none();
}

CacheEntry& call_entry(PyObject* object) { return unchecked<CacheEntry>(object); }

namespace {

// A Python object that can be part of a cycle: a module may hold the callable that watches it.
py::custom_type_setup collectable() {
  return py::custom_type_setup([](PyHeapTypeObject* heap_type) {
    PyTypeObject* type = &heap_type->ht_type;
    type->tp_flags |= Py_TPFLAGS_HAVE_GC;
    type->tp_traverse = [](PyObject* self, visitproc visit, void* arg) {
      Py_VISIT(Py_TYPE(self));
      if (!py::detail::is_holder_constructed(self)) return 0;
      return call_entry(self).traverse(visit, arg);
    };
    type->tp_clear = [](PyObject* self) {
      if (py::detail::is_holder_constructed(self)) call_entry(self).clear();
      return 0;
    };
  });
}

}  // namespace

using Described = py::typing::Dict<py::str, py::object>;

void bind_cache_entry(py::module_& module) {
  py::class_<CacheEntry>(module, "_CallEntry", collectable())
      .def(py::init<const Described&>(), py::arg("described"))
      .def("flag", &CacheEntry::flag)
      .def_property_readonly("runs", &CacheEntry::runs)
      .def_property_readonly("graph", [](const CacheEntry& self) { return self.graph(); });
}

}  // namespace gpuprof::bindings
