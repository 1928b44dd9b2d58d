#include "bindings/callable/cache_entry.hpp"

#include <pybind11/stl.h>
#include <pybind11/typing.h>

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
  Run(CacheEntry& entry, CallBuffers& buffers)
      : entry_(entry),
        arrays_(buffers.arrays),
        user_addresses_(buffers.user_addresses),
        results_(buffers.results),
        owned_(buffers.owned) {}

  // Whether the graph was launched: not on a stream that is being captured.
  bool operator()() {
    const CurrentStream on = entry_.stream();
    if (is_staged() && is_captured(on)) return false;
    retarget();
    const auto launch_and_finish = [&] {
      const bool launched = launch(on);
      if (launched && finish()) note_graph_use(entry_.spec_.graph.ptr(), on);
      return launched;
    };
    if (!with_cleanup(launch_and_finish, [this] { let_others_launch(); })) return false;
    ++entry_.runs_;
    PyObject* after = entry_.spec_.after.ptr();
    if (after == Py_None) return true;
    std::vector<PyObject*> written;
    written.reserve(entry_.back_.size());
    for (const std::size_t index : entry_.back_) written.push_back(arrays_[index].object);
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
    owned_.push_back(checked(object));  // let go by whoever has the buffers
    return object;
  }

  [[nodiscard]] bool is_staged() const {
    return std::any_of(entry_.in_.begin(), entry_.in_.end(),
                       [this](std::size_t index) { return !arrays_[index].fits; });
  }

  void retarget() {
    for (const std::size_t index : entry_.in_) {
      user_addresses_.push_back(arrays_[index].fits ? arrays_[index].address : stage(index));
    }
    for (const auto& [framework, make, like, copied] : entry_.spec_.results) {
      results_.push_back(make.is_none() ? like.ptr()
                                        : own(PyObject_CallOneArg(make.ptr(), like.ptr())));
    }
    for (const std::size_t index : entry_.out_)
      user_addresses_.push_back(address_of(results_[index]));
    for (const std::size_t index : entry_.back_) {
      user_addresses_.push_back(arrays_[index].fits ? arrays_[index].address : 0);
    }
  }

  // A new array that the copies can take.
  std::uintptr_t stage(std::size_t index) {
    static PyObject* const name = interned("stage");
    const ArraySpec& array = entry_.spec_.arrays[index];
    return address_of(own(PyObject_CallMethodObjArgs(
        array.framework.ptr(), name, array.inside.ptr(), arrays_[index].object, nullptr)));
  }

  static std::uintptr_t address_of(PyObject* array) {
    ArrayDesc desc;  // NOLINT: its storage is written where it is used
    if (!read_array(array, desc)) throw py::type_error("not an array in memory");
    return desc.address;
  }

  // False where the stream is being captured.
  bool launch(const CurrentStream& on) {
    graphs::IoAddresses at{user_addresses_.data()};
    // Each copy is refused once at most: after that it is pointed at what the graph's kind of
    // memory is, or left out.
    for (std::size_t tries = 0; tries <= user_addresses_.size(); ++tries) {
      if (leaves_copies()) keep_turn_once();
      at.refused = -1;
      const LaunchResult done = launch_pointed(entry_.spec_.graph.ptr(), on, at);
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
    const auto first = user_addresses_.begin() + static_cast<std::ptrdiff_t>(entry_.in_.size());
    return std::find(first, user_addresses_.end(), 0) != user_addresses_.end();
  }

  void keep_turn_once() {
    if (keeps_turn_) return;
    keep_turn(entry_.spec_.graph.ptr());
    keeps_turn_ = true;
  }

  void let_others_launch() {
    if (keeps_turn_) give_turn_back(entry_.spec_.graph.ptr());
    keeps_turn_ = false;
  }

  void avoid(std::size_t copy) {
    user_addresses_[copy] = copy < entry_.in_.size() ? stage(entry_.in_[copy]) : 0;
  }

  // What the copies have left out, by the array library. Whether there was anything.
  bool finish() {
    bool used = false;
    std::size_t copy = entry_.in_.size();
    for (const std::size_t index : entry_.out_) {
      if (user_addresses_[copy++] != 0) continue;
      const auto& [framework, make, like, copied] = entry_.spec_.results[index];
      used = fill(framework, results_[index], like.ptr());
    }
    for (const std::size_t index : entry_.back_) {
      if (user_addresses_[copy++] != 0) continue;
      const ArraySpec& array = entry_.spec_.arrays[index];
      used = fill(array.framework, arrays_[index].object, array.inside.ptr());
    }
    return used;
  }

  static bool fill(const py::object& framework, PyObject* to, PyObject* from) {
    static PyObject* const name = interned("fill");
    Py_DECREF(checked(PyObject_CallMethodObjArgs(framework.ptr(), name, to, from, nullptr)));
    return true;
  }

  CacheEntry& entry_;
  bool keeps_turn_ = false;
  const std::vector<CallArray>& arrays_;
  std::vector<std::uintptr_t>& user_addresses_;
  std::vector<PyObject*>& results_;
  std::vector<PyObject*>& owned_;
};

std::unique_ptr<CallBuffers> CacheEntry::take_buffers() {
  if (spare_) return std::move(spare_);
  auto buffers = std::make_unique<CallBuffers>();
  buffers->owned.reserve(spec_.results.size() + spec_.arrays.size());
  return buffers;
}

CacheEntry::CacheEntry(EntrySpec spec)
    : spec_(std::move(spec)), ordinal_(spec_.device.cast<int>()) {
  check_guards(spec_.guards);
  callback(Callback::kSameValue);  // imported now, not in the first comparison
  for (std::size_t i = 0; i < spec_.arrays.size(); ++i) {
    if (spec_.arrays[i].copied_in) in_.push_back(i);
    if (spec_.arrays[i].copied_back) back_.push_back(i);
  }
  for (std::size_t i = 0; i < spec_.results.size(); ++i) {
    if (std::get<3>(spec_.results[i])) out_.push_back(i);
  }
  if (spec_.stream_type.is_none()) return;
  api_ = exchange_api(reinterpret_cast<PyTypeObject*>(spec_.stream_type.ptr()));
  if (api_ != nullptr && api_->current_stream == nullptr) api_ = nullptr;
}

bool CacheEntry::matches(PyObject* args, PyObject* keywords, CallBuffers& buffers) const {
  auto& arrays = buffers.arrays;
  arrays.assign(spec_.arrays.size(), {});
  const CallMatch call{spec_.arrays, arrays};
  return spec_.args.matches(args, call) &&
         spec_.keywords.matches_keywords(keywords, spec_.keywords_in_order, call) &&
         !overlaps(arrays);
}

bool CacheEntry::overlaps(const std::vector<CallArray>& arrays) const {
  for (const std::size_t written : back_) {
    const CallArray& target = arrays[written];
    for (std::size_t other = 0; other < arrays.size(); ++other) {
      const CallArray& array = arrays[other];
      if (other != written && array.begin < target.end && target.begin < array.end) return true;
    }
  }
  for (const std::size_t written : back_) {
    if (meets(spec_.read, arrays[written].begin, arrays[written].end)) return true;
  }
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    // An array that the graph works on in place is written to and read in the function's order.
    if (!spec_.arrays[i].in_place && meets(spec_.written, arrays[i].begin, arrays[i].end))
      return true;
  }
  return false;
}

bool CacheEntry::overlap_at(const Ranges& places) const {
  if (places.size() != spec_.arrays.size()) return true;  // of a class that is made without some
  std::vector<CallArray> arrays;
  for (const auto& [begin, end] : places) arrays.push_back({nullptr, begin, begin, end});
  return overlaps(arrays);
}

bool CacheEntry::state_is_as_captured() const {
  return std::all_of(spec_.state_guards.begin(), spec_.state_guards.end(), [](const auto& guard) {
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
  if (spec_.stream.is_none()) return graph_stream(spec_.graph.ptr());
  if (PyLong_Check(spec_.stream.ptr()) != 0)
    return {stream_handle(spec_.stream.ptr()), ordinal_, true};
  return {take_handle(PyObject_CallOneArg(spec_.stream.ptr(), spec_.device.ptr())), ordinal_, true};
}

PyObject* CacheEntry::run(CallBuffers& buffers) {
  if (spec_.apply.is_none()) {
    return Run(*this, buffers)() ? checked(spec_.result.build(buffers.results)) : nullptr;
  }
  if (Run::is_captured(stream())) return nullptr;
  PyObject* self = py::cast(this, py::return_value_policy::reference).release().ptr();
  std::vector<PyObject*> given{self};
  given.reserve(1 + buffers.arrays.size());
  for (const CallArray& array : buffers.arrays) given.push_back(array.object);
  PyObject* made = PyObject_Vectorcall(spec_.apply.ptr(), given.data(), given.size(), nullptr);
  Py_DECREF(self);
  buffers.owned.push_back(checked(made));
  if (PyTuple_Check(made) == 0) throw py::type_error("apply() must return a tuple");
  PyObject** const first = PySequence_Fast_ITEMS(made);
  return checked(spec_.result.build({first, first + PyTuple_GET_SIZE(made)}));
}

py::tuple CacheEntry::replay(const py::tuple& arrays) {
  if (arrays.size() != spec_.arrays.size()) throw py::value_error("not the arrays of a call");
  const std::unique_ptr<CallBuffers> buffers = take_buffers();
  buffers->arrays.assign(spec_.arrays.size(), {});
  const auto run = [&] {
    for (std::size_t i = 0; i < spec_.arrays.size(); ++i) {
      if (!read_call_array(arrays[i].ptr(), spec_.arrays[i], buffers->arrays[i]))
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
  for (const py::object* object : {&spec_.graph, &spec_.after, &spec_.apply, &spec_.guards,
                                   &spec_.stream_type, &spec_.stream}) {
    Py_VISIT(object->ptr());
  }
  for (const ArraySpec& array : spec_.arrays) {
    Py_VISIT(array.framework.ptr());
    Py_VISIT(array.inside.ptr());
  }
  for (const auto& [ask, expected] : spec_.state_guards) {
    Py_VISIT(ask.ptr());
    Py_VISIT(expected.ptr());
  }
  for (const auto& [framework, make, like, copied] : spec_.results) {
    Py_VISIT(framework.ptr());
    Py_VISIT(make.ptr());
    Py_VISIT(like.ptr());
  }
  for (const Pattern* pattern : {&spec_.args, &spec_.keywords, &spec_.result}) {
    const int stop = pattern->traverse(visit, arg);
    if (stop != 0) return stop;
  }
  return 0;
}

void CacheEntry::clear() {
  cleared_ = true;
  for (ArraySpec& array : spec_.arrays) array.framework = array.inside = py::none();
  spec_.state_guards.clear();
  spec_.results.clear();
  in_.clear();
  out_.clear();
  back_.clear();
  spec_.after = spec_.apply = spec_.guards = spec_.stream = py::none();
}

CacheEntry& call_entry(PyObject* object) { return unchecked<CacheEntry>(object); }

namespace {

using Strides = std::vector<std::int64_t>;

ArraySpec make_array_spec(py::object framework, py::object inside, const AnyTuple& desc,
                          std::optional<Strides> call_strides, std::optional<bool> requires_grad,
                          bool of_torch, bool copied_in, bool copied_back) {
  ArraySpec spec;
  spec.framework = std::move(framework);
  spec.inside = std::move(inside);
  for (const py::handle type : spec.framework.attr("types")) {
    spec.types.push_back(reinterpret_cast<PyTypeObject*>(type.ptr()));
  }
  static_cast<ArrayFacts&>(spec) = array_facts(desc.ptr());
  measure(spec.shape, spec.strides.data(), spec.dtype.bits, spec.first, spec.last);
  spec.in_place = spec.framework.attr("in_place").cast<bool>();
  spec.call_strides = std::move(call_strides);
  spec.requires_grad = requires_grad;
  // A real tensor is a negative view where it is the imaginary part of a conjugate one, every
  // second of its numbers, which shows in its strides if it has more than one.
  const auto code = static_cast<DlCode>(spec.dtype.code);
  const bool is_real = code == DlCode::kFloat || code == DlCode::kBfloat;
  const bool is_one =
      std::all_of(spec.shape.begin(), spec.shape.end(), [](auto n) { return n == 1; });
  spec.may_be_view = of_torch && (code == DlCode::kComplex || (is_real && is_one));
  spec.copied_in = copied_in;
  spec.copied_back = copied_back;
  return spec;
}

std::unique_ptr<CacheEntry> make_entry(py::object graph, const AnyTuple& args,
                                       const AnyTuple& keywords, bool keywords_in_order,
                                       std::vector<ArraySpec> arrays, StateGuards state_guards,
                                       py::object guards, EntryResults results,
                                       const AnyTuple& result, Ranges written, Ranges read,
                                       py::object after, py::object apply,
                                       std::uint64_t verify_every, py::int_ device,
                                       py::object stream_type, py::object stream) {
  EntrySpec spec{std::move(graph),       Pattern(args),      Pattern(keywords),
                 keywords_in_order,      std::move(arrays),  std::move(state_guards),
                 std::move(guards),      std::move(results), Pattern(result),
                 std::move(written),     std::move(read),    std::move(after),
                 std::move(apply),       verify_every,       std::move(device),
                 std::move(stream_type), std::move(stream)};
  return std::make_unique<CacheEntry>(std::move(spec));
}

}  // namespace

void bind_cache_entry(py::module_& module) {
  py::class_<ArraySpec>(module, "_ArraySpec", "One array of the arguments, as a graph wants it.")
      .def(py::init(&make_array_spec), py::kw_only(), py::arg("framework"), py::arg("inside"),
           py::arg("desc"), py::arg("call_strides"), py::arg("requires_grad"), py::arg("of_torch"),
           py::arg("copied_in"), py::arg("copied_back"));
  py::class_<CacheEntry>(module, "_CacheEntry", collectable<&call_entry>())
      .def(py::init(&make_entry), py::kw_only(), py::arg("graph"), py::arg("args"),
           py::arg("keywords"), py::arg("keywords_in_order"), py::arg("arrays"),
           py::arg("state_guards"), py::arg("guards"), py::arg("results"), py::arg("result"),
           py::arg("written"), py::arg("read"), py::arg("after"), py::arg("apply"),
           py::arg("verify_every"), py::arg("device"), py::arg("stream_type"), py::arg("stream"))
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
