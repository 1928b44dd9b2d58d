#include "bindings/callable/cache_entry.hpp"

#include <pybind11/stl.h>

#include <algorithm>

#include "bindings/bind.hpp"
#include "bindings/graphs/launch.hpp"
#include "bindings/python/callbacks.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/objects.hpp"
#include "graphs/capture.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using graphs::LaunchResult;

namespace {

// Of what tells a current stream, whose reference this takes: torch gives the handle, CuPy a
// stream.
std::uintptr_t take_handle(PyObject* current) {
  static PyObject* const name = interned("ptr");
  PyObject* number = current;
  if (current != nullptr && PyLong_Check(current) == 0) {
    number = PyObject_GetAttr(current, name);
    Py_DECREF(current);
  }
  void* handle = PyLong_AsVoidPtr(checked(number));
  Py_DECREF(number);
  if (handle == nullptr && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return reinterpret_cast<std::uintptr_t>(handle);
}

// All objects that an entry is made of, those of its arrays among them.
py::object objects_of(const py::dict& given) {
  py::list all(given.attr("values")());
  for (const py::handle array : given["arrays"]) all.attr("extend")(array.attr("values")());
  return py::tuple(all);
}

// Whether [begin, end) meets one of `ranges`.
bool meets(const Ranges& ranges, std::uintptr_t begin, std::uintptr_t end) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                      [](auto at, const auto& range) { return at < range.second; });
  return after != ranges.end() && after->first < end;
}

}  // namespace

void CallBuffers::let_go() {
  for (CallArray& array : arrays) Py_CLEAR(array.object);
  for (PyObject* object : owned) Py_DECREF(object);
  owned.clear();
  results.clear();
  user_addresses.clear();
}

class CacheEntry::Run {
 public:
  Run(CacheEntry& entry, CallBuffers& call) : entry_(entry), call_(call) {}

  // Whether the graph was launched: not on a stream that is being captured.
  bool operator()() {
    const CurrentStream on = entry_.stream();
    if (is_staged() && is_captured(on)) return false;
    retarget();
    const auto launch_and_finish = [&] {
      const bool launched = launch(on);
      if (launched && finish()) note_graph_use(entry_.graph_.ptr(), on);
      return launched;
    };
    if (!with_cleanup(launch_and_finish, [this] { let_others_launch(); })) return false;
    ++entry_.runs_;
    PyObject* after = entry_.after_.ptr();
    if (after == Py_None) return true;
    std::vector<PyObject*> written;
    written.reserve(entry_.back_.size());
    for (const std::size_t index : entry_.back_) written.push_back(call_.arrays[index].object);
    Py_DECREF(checked(PyObject_Vectorcall(after, written.data(), written.size(), nullptr)));
    return true;
  }

  // Asked before anything is enqueued, which would become part of that capture; otherwise the
  // launch finds it out. The legacy default stream cannot be captured.
  static bool is_captured(const CurrentStream& on) {
    return on.handle != 0 &&
           graphs::status_of(on.handle, on.ordinal) != graphs::CaptureStatus::kNone;
  }

 private:
  PyObject* own(PyObject* object) {
    call_.owned.push_back(checked(object));  // let go by whoever has the buffers
    return object;
  }

  [[nodiscard]] bool is_staged() const {
    return std::any_of(entry_.in_.begin(), entry_.in_.end(),
                       [this](std::size_t index) { return !call_.arrays[index].fits; });
  }

  void retarget() {
    for (const std::size_t index : entry_.in_) {
      call_.user_addresses.push_back(call_.arrays[index].fits ? call_.arrays[index].address
                                                              : stage(index));
    }
    for (const auto& [framework, make, like, copied] : entry_.results_) {
      call_.results.push_back(make.is_none() ? like.ptr()
                                             : own(PyObject_CallOneArg(make.ptr(), like.ptr())));
    }
    for (const std::size_t index : entry_.out_)
      call_.user_addresses.push_back(address_of(call_.results[index]));
    for (const std::size_t index : entry_.back_) {
      call_.user_addresses.push_back(call_.arrays[index].fits ? call_.arrays[index].address : 0);
    }
  }

  // A new array that the copies can take.
  std::uintptr_t stage(std::size_t index) {
    static PyObject* const name = interned("stage");
    const ArraySpec& array = entry_.arrays_[index];
    return address_of(own(PyObject_CallMethodObjArgs(
        array.framework.ptr(), name, array.inside.ptr(), call_.arrays[index].object, nullptr)));
  }

  static std::uintptr_t address_of(PyObject* array) {
    ArrayDesc desc;  // NOLINT: its storage is written where it is used
    if (!read_array(array, desc)) throw py::type_error("not an array in memory");
    return desc.address;
  }

  // False where the stream is being captured.
  bool launch(const CurrentStream& on) {
    graphs::IoAddresses at{call_.user_addresses.data()};
    // Each copy is refused once at most: after that it is pointed at what the graph's kind of
    // memory is, or left out.
    for (std::size_t tries = 0; tries <= call_.user_addresses.size(); ++tries) {
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
    const auto first =
        call_.user_addresses.begin() + static_cast<std::ptrdiff_t>(entry_.in_.size());
    return std::find(first, call_.user_addresses.end(), 0) != call_.user_addresses.end();
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
    call_.user_addresses[copy] = copy < entry_.in_.size() ? stage(entry_.in_[copy]) : 0;
  }

  // What the copies have left out, by the array library. Whether there was anything.
  bool finish() {
    bool used = false;
    std::size_t copy = entry_.in_.size();
    for (const std::size_t index : entry_.out_) {
      if (call_.user_addresses[copy++] != 0) continue;
      const auto& [framework, make, like, copied] = entry_.results_[index];
      used = fill(framework, call_.results[index], like.ptr());
    }
    for (const std::size_t index : entry_.back_) {
      if (call_.user_addresses[copy++] != 0) continue;
      const ArraySpec& array = entry_.arrays_[index];
      used = fill(array.framework, call_.arrays[index].object, array.inside.ptr());
    }
    return used;
  }

  static bool fill(py::handle framework, PyObject* to, PyObject* from) {
    static PyObject* const name = interned("fill");
    Py_DECREF(checked(PyObject_CallMethodObjArgs(framework.ptr(), name, to, from, nullptr)));
    return true;
  }

  CacheEntry& entry_;
  CallBuffers& call_;
  bool keeps_turn_ = false;
};

std::unique_ptr<CallBuffers> CacheEntry::take_buffers() {
  if (spare_) return std::move(spare_);
  auto buffers = std::make_unique<CallBuffers>();
  buffers->owned.reserve(results_.size() + arrays_.size());
  return buffers;
}

CacheEntry::CacheEntry(const py::kwargs& given)
    : kept_(objects_of(given)),
      graph_(given["graph"]),
      args_(given["args"]),
      keywords_(given["keywords"]),
      keywords_in_order_(given["keywords_in_order"].cast<bool>()),
      state_guards_(given["state_guards"].cast<decltype(state_guards_)>()),
      guards_(given["guards"].ptr()),
      results_(given["results"].cast<decltype(results_)>()),
      result_(given["result"]),
      written_(given["written"].cast<Ranges>()),
      read_(given["read"].cast<Ranges>()),
      after_(given["after"].ptr()),
      apply_(given["apply"].ptr()),
      verify_every_(given["verify_every"].cast<std::uint64_t>()),
      device_(given["device"].ptr()),
      stream_(given["stream"].ptr()),
      ordinal_(device_.cast<int>()) {
  check_guards(guards_);
  callback(Callback::kSameValue);  // imported now, not in the first comparison
  for (const py::handle each : given["arrays"]) {
    const auto& array = arrays_.emplace_back(py::cast<py::dict>(each));
    if (array.copied_in) in_.push_back(arrays_.size() - 1);
    if (array.copied_back) back_.push_back(arrays_.size() - 1);
  }
  for (std::size_t i = 0; i < results_.size(); ++i) {
    if (std::get<3>(results_[i])) out_.push_back(i);
  }
  const py::object stream_type = given["stream_type"];
  if (stream_type.is_none()) return;
  api_ = exchange_api(reinterpret_cast<PyTypeObject*>(stream_type.ptr()));
  if (api_ != nullptr && api_->current_stream == nullptr) api_ = nullptr;
}

bool CacheEntry::matches(PyObject* args, PyObject* keywords, CallBuffers& buffers) const {
  if (!kept_) return false;
  auto& arrays = buffers.arrays;
  arrays.assign(arrays_.size(), {});
  const CallMatch call{arrays_, arrays};
  return args_.matches(args, call) &&
         keywords_.matches_keywords(keywords, keywords_in_order_, call) && !overlaps(arrays);
}

bool CacheEntry::overlaps(const std::vector<CallArray>& arrays) const {
  for (const std::size_t written : back_) {
    const CallArray& target = arrays[written];
    for (std::size_t other = 0; other < arrays.size(); ++other) {
      const CallArray& array = arrays[other];
      if (other != written && array.begin < target.end && target.begin < array.end) return true;
    }
    if (meets(read_, target.begin, target.end)) return true;
  }
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    // An array that the graph works on in place is written to and read in the function's order.
    if (!arrays_[i].in_place && meets(written_, arrays[i].begin, arrays[i].end)) return true;
  }
  return false;
}

bool CacheEntry::overlap_at(const Ranges& places) const {
  if (places.size() != arrays_.size()) return true;  // of a class that is made without some
  std::vector<CallArray> arrays;
  for (const auto& [begin, end] : places) arrays.push_back({nullptr, begin, begin, end});
  return overlaps(arrays);
}

bool CacheEntry::state_is_as_captured() const {
  return std::all_of(state_guards_.begin(), state_guards_.end(), [](const auto& guard) {
    PyObject* answer = checked(PyObject_CallNoArgs(guard.first.ptr()));
    const bool same = same_value(answer, guard.second.ptr());
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

PyObject* CacheEntry::run(CallBuffers& buffers) {
  if (apply_.is_none()) {
    return Run(*this, buffers)() ? checked(result_.build(buffers.results)) : nullptr;
  }
  if (Run::is_captured(stream())) return nullptr;
  PyObject* self = py::cast(this, py::return_value_policy::reference).release().ptr();
  std::vector<PyObject*> given{self};
  given.reserve(1 + buffers.arrays.size());
  for (const CallArray& array : buffers.arrays) given.push_back(array.object);
  PyObject* made = PyObject_Vectorcall(apply_.ptr(), given.data(), given.size(), nullptr);
  Py_DECREF(self);
  buffers.owned.push_back(checked(made));
  if (PyTuple_Check(made) == 0) throw py::type_error("apply() must return a tuple");
  PyObject** const first = PySequence_Fast_ITEMS(made);
  return checked(result_.build({first, first + PyTuple_GET_SIZE(made)}));
}

py::tuple CacheEntry::replay(const py::tuple& arrays) {
  if (!kept_ || arrays.size() != arrays_.size()) throw py::value_error("not the arrays of a call");
  const std::unique_ptr<CallBuffers> buffers = take_buffers();
  buffers->arrays.assign(arrays_.size(), {});
  const auto run = [&] {
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      if (!read_call_array(arrays[i].ptr(), arrays_[i], buffers->arrays[i]))
        throw py::value_error("not an array that this graph takes");
    }
    if (!Run(*this, *buffers)()) throw_invalid_state("this stream is being captured");
    py::tuple results(buffers->results.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      results[i] = py::reinterpret_borrow<py::object>(buffers->results[i]);
    }
    return results;
  };
  return with_cleanup(run, [&] { buffers->let_go(); });
}

int CacheEntry::traverse(visitproc visit, void* arg) const {
  Py_VISIT(graph_.ptr());
  Py_VISIT(kept_.ptr());
  return 0;
}

void CacheEntry::clear() { const py::object gone = std::move(kept_); }

CacheEntry& call_entry(PyObject* object) { return unchecked<CacheEntry>(object); }

void bind_cache_entry(py::module_& module) {
  py::class_<CacheEntry>(module, "_CacheEntry", collectable<&call_entry>())
      .def(py::init<const py::kwargs&>())
      .def(
          "replay",
          [](CacheEntry& self, const AnyTuple& arrays) { return AnyTuple(self.replay(arrays)); },
          py::arg("arrays"))
      .def("overlap_at", &CacheEntry::overlap_at, py::arg("places"))
      .def_property_readonly("runs", &CacheEntry::runs)
      .def_property_readonly("graph", [](const CacheEntry& self) { return self.graph(); });
  module.def(
      "_rebuild",
      [](const AnyTuple& pattern, const py::object& arrays) {
        PyObject* given = arrays.ptr();  // the caller's: a new one would be this frame's at exit
        if (PyList_Check(given) == 0 && PyTuple_Check(given) == 0)
          throw py::type_error("arrays: expected a list or a tuple");
        PyObject** const first = PySequence_Fast_ITEMS(given);
        return owned(Pattern(pattern).build({first, first + PySequence_Fast_GET_SIZE(given)}));
      },
      py::arg("pattern"), py::arg("arrays"), "A structure with new containers around arrays.");
}

}  // namespace gpuprof::bindings
