#include "bindings/callable/guards.hpp"

#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/callable/pattern.hpp"
#include "bindings/interop/array_desc.hpp"
#include "bindings/interop/torch_tensor.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/objects.hpp"
#include "driver/process.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

// Runs no Python code: of these types alone an equal object is as good as the same one.
bool is_same_object(PyObject* value, PyObject* expected) {
  if (value == expected) return true;
  if (Py_TYPE(value) != Py_TYPE(expected)) return false;
  return (PyLong_CheckExact(value) || PyFloat_CheckExact(value) || PyUnicode_CheckExact(value)) &&
         same_value(value, expected);
}

#if PY_VERSION_HEX >= 0x030C0000

using Watchers = std::unordered_map<PyObject*, std::vector<bool*>>;

// What a change of a dict sets. Never destroyed: dicts may change until the process is over.
Watchers& watchers() { return driver::immortal<Watchers>(); }

int on_dict_event(PyDict_WatchEvent /*event*/, PyObject* dict, PyObject* /*key*/,
                  PyObject* /*value*/) {
  const auto found = watchers().find(dict);
  if (found == watchers().end()) return 0;
  for (bool* is_changed : found->second) *is_changed = true;
  return 0;
}

// -1 if the interpreter's few places for watchers are taken.
int watcher_id() {
  static const int id = [] {
    const int added = PyDict_AddWatcher(&on_dict_event);
    if (added < 0) PyErr_Clear();
    return added;
  }();
  return id;
}

#if PY_VERSION_HEX >= 0x030D0000

// An object's attributes may be stored inside of it, where its dict shows them too. An assignment
// then tells no watcher. A dict that had to grow has them for itself: so it gets keys for a moment,
// more than any such object has room for.
bool move_values_into(PyObject* dict) {
  static PyObject* const keys = [] {
    PyObject* made = PyDict_New();
    for (int i = 0; made != nullptr && i < 64; ++i) {
      PyObject* key = PyUnicode_FromFormat("gpuprof key %d", i);
      if (key == nullptr || PyDict_SetItem(made, key, Py_None) != 0) Py_CLEAR(made);
      Py_XDECREF(key);
    }
    return made;
  }();
  if (keys == nullptr || PyDict_Update(dict, keys) != 0) return false;
  Py_ssize_t position = 0;
  PyObject* key = nullptr;
  while (PyDict_Next(keys, &position, &key, nullptr) != 0) {
    if (PyDict_DelItem(dict, key) != 0) return false;
  }
  return true;
}

#else

bool move_values_into(PyObject* /*dict*/) { return true; }

#endif

void remove_watcher(PyObject* dict, const bool* is_changed) {
  const auto found = watchers().find(dict);
  if (found == watchers().end()) return;
  auto& all = found->second;
  all.erase(std::remove(all.begin(), all.end(), is_changed), all.end());
  if (!all.empty()) return;
  watchers().erase(found);
  // At exit the interpreter may have forgotten its watchers already.
  if (PyDict_Unwatch(watcher_id(), dict) != 0) PyErr_Clear();
}

#endif

// (address, shape, strides, dtype, device), by torch's attributes; empty if one fails.
py::object attributes_of(PyObject* tensor) {
  static PyObject* const data_ptr = interned("data_ptr");
  static PyObject* const shape = interned("shape");
  static PyObject* const stride = interned("stride");
  static PyObject* const dtype = interned("dtype");
  static PyObject* const device = interned("device");
  PyObject* result = checked(PyTuple_New(5));
  Py_ssize_t place = 0;
  for (PyObject* name : {data_ptr, shape, stride, dtype, device}) {
    const bool is_method = name == data_ptr || name == stride;
    PyObject* value =
        is_method ? PyObject_CallMethodNoArgs(tensor, name) : PyObject_GetAttr(tensor, name);
    if (value == nullptr) {
      Py_DECREF(result);
      ignore_exception();
      return {};
    }
    PyTuple_SET_ITEM(result, place++, value);
  }
  return py::reinterpret_steal<py::object>(result);
}

bool has_attributes(PyObject* tensor, PyObject* expected) {
  const py::object now = attributes_of(tensor);
  if (!now) return false;
  const int same = PyObject_RichCompareBool(now.ptr(), expected, Py_EQ);
  return same < 0 ? ignore_exception() : same == 1;
}

// Stands for a key that is not there. Borrowed.
PyObject* absent() {
  static PyObject* const sentinel =
      checked(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type)));
  return sentinel;
}

// What a `_core._Guards` is.
class Guards {
 public:
  // `containers`: tuples of (dict, list or set, keys, values, whole, owner), with a tuple of each.
  // A whole dict has these keys alone, in this order. Of another one no other key is looked at, and
  // `ABSENT` as a value says that the key is not there. `owner` is the object whose `__dict__` it
  // has to be, or None. A list has these values, a set these keys. `tensors`: tuples of (tensor,
  // its _core._array_facts or None). Each check compares all containers, and the next `at_once`
  // tensors in turn; 0 is all of them. Throws py::value_error and py::cast_error for anything else.
  Guards(const py::tuple& containers, const py::tuple& tensors, std::size_t at_once)
      : kept_containers_(containers), kept_tensors_(tensors), at_once_(at_once) {
    for (const py::handle each : containers) add_container(py::cast<py::tuple>(each));
    for (const py::handle each : tensors) add_tensor(py::cast<py::tuple>(each));
    watch();
  }
  Guards(const Guards&) = delete;
  Guards& operator=(const Guards&) = delete;
  ~Guards() { stop_watching(); }

  // Whether what was compared is unchanged.
  bool hold() {
    return !flagged_ && owners_hold() && dicts_hold() && sequences_hold() && tensors_hold();
  }
  // From now on hold() is false.
  void flag() noexcept { flagged_ = true; }

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(kept_containers_.ptr());
    Py_VISIT(kept_tensors_.ptr());
    for (const Tensor& each : tensors_) Py_VISIT(each.attributes.ptr());
    return 0;
  }

  void clear() {
    flagged_ = true;  // nothing is looked at any more
    stop_watching();
    dicts_.clear();
    const auto tensors = std::exchange(tensors_, {});
    const py::object gone[] = {std::move(kept_containers_), std::move(kept_tensors_)};
  }

 private:
  // Borrows the objects.
  struct Container {
    PyObject* object;
    PyObject* keys;    // a tuple
    PyObject* values;  // another one; absent() for none
    PyObject* owner;   // of a `__dict__`; else None
    bool whole;
    std::uint64_t version = 0;  // when it was compared; 0 is no dict's

    [[nodiscard]] Py_ssize_t size() const { return PyTuple_GET_SIZE(keys); }
  };
  struct Owned {
    PyObject* const* place;  // where the owner has its `__dict__`
    PyObject* dict;
  };
  struct Tensor {
    PyObject* tensor = nullptr;  // borrowed
    py::object attributes;       // where no protocol tells of it; else null
    TorchTensorView view;
    std::uintptr_t address = 0;
    DlDevice device{kDlpackCuda, 0};
    DlDataType dtype{0, 0, 1};
    int rank = 0;
    std::size_t sizes = 0;  // where its sizes begin in `sizes_`, and after them its strides
  };

  void add_container(const py::tuple& described) {
    const auto [object, keys, values, whole, owner] =
        described.cast<std::tuple<py::handle, py::tuple, py::tuple, bool, py::handle>>();
    const bool is_dict = PyDict_Check(object.ptr()) != 0;
    if (!is_dict && !PyList_CheckExact(object.ptr()) && !PySet_CheckExact(object.ptr())) {
      throw py::value_error("only a dict, a list or a set can be guarded");
    }
    if (keys.size() != values.size()) throw py::value_error("as many keys as values are guarded");
    (is_dict ? dicts_ : sequences_)
        .push_back({object.ptr(), keys.ptr(), values.ptr(), owner.ptr(), whole});
    if (owner.is_none()) return;
    PyObject* const* place = _PyObject_GetDictPtr(owner.ptr());
    if (place != nullptr) owned_.push_back({place, object.ptr()});
  }

  void add_tensor(const py::tuple& described) {
    const auto [tensor, told] = described.cast<std::tuple<py::handle, py::handle>>();
    Tensor each;
    each.tensor = tensor.ptr();
    if (told.is_none()) {
      each.attributes = attributes_of(each.tensor);
      if (!each.attributes)
        throw py::value_error("a tensor that does not tell where its memory is");
    } else {
      const ArrayFacts facts = array_facts(told);
      each.address = facts.address;
      each.device = facts.device;
      each.dtype = facts.dtype;
      each.rank = static_cast<int>(facts.shape.size());
      each.sizes = sizes_.size();
      sizes_.insert(sizes_.end(), facts.shape.begin(), facts.shape.end());
      sizes_.insert(sizes_.end(), facts.strides.begin(), facts.strides.end());
      ArrayDesc now;  // NOLINT: its storage is written where it is used
      if (read_array(each.tensor, now) && has_facts(each, now)) {
        each.view = TorchTensorView(each.tensor, now);
      }
    }
    tensors_.push_back(std::move(each));
  }

  void watch() {
#if PY_VERSION_HEX >= 0x030C0000
    const auto begin = [this](const Container& each) {
      auto& all = watchers()[each.object];
      const bool is_told =
          !all.empty() || ((each.owner == Py_None || move_values_into(each.object)) &&
                           PyDict_Watch(watcher_id(), each.object) == 0);
      if (is_told) all.push_back(&is_changed_);
      return is_told;
    };
    try {
      is_watching_ = watcher_id() >= 0 && std::all_of(dicts_.begin(), dicts_.end(), begin);
    } catch (const std::bad_alloc&) {
    }
    if (!is_watching_) {  // then they are compared each time
      PyErr_Clear();
      stop_watching();
    }
#endif
  }

  void stop_watching() noexcept {
#if PY_VERSION_HEX >= 0x030C0000
    PyObject* raised = PyErr_GetRaisedException();
    for (const Container& each : dicts_) remove_watcher(each.object, &is_changed_);
    PyErr_SetRaisedException(raised);
#endif
  }

  bool owners_hold() const {
    return std::all_of(owned_.begin(), owned_.end(),
                       [](const Owned& each) { return *each.place == each.dict; });
  }

  bool dicts_hold() {
    if (is_watching_ && !is_changed_) return true;
    is_changed_ = false;  // first: a lookup may run code that changes one
    for (Container& each : dicts_) {
#if PY_VERSION_HEX < 0x030C0000
      const auto version = reinterpret_cast<PyDictObject*>(each.object)->ma_version_tag;
      if (version == each.version) continue;
#endif
      if (!is_same_dict(each)) {
        is_changed_ = true;
        return false;
      }
#if PY_VERSION_HEX < 0x030C0000
      each.version = version;
#endif
    }
    return true;
  }

  static bool is_same_dict(const Container& each) {
    if (each.whole && PyDict_GET_SIZE(each.object) != each.size()) return false;
    Py_ssize_t position = 0;
    for (Py_ssize_t i = 0; i < each.size(); ++i) {
      PyObject* const expected_key = PyTuple_GET_ITEM(each.keys, i);
      PyObject* key = nullptr;
      PyObject* value = nullptr;
      if (each.whole) {
        if (PyDict_Next(each.object, &position, &key, &value) == 0) return false;
        if (!is_same_object(key, expected_key)) return false;
      } else {
        value = PyDict_GetItemWithError(each.object, expected_key);
        if (value == nullptr && PyErr_Occurred() != nullptr) return ignore_exception();
        if (value == nullptr) value = absent();
      }
      if (!is_same_object(value, PyTuple_GET_ITEM(each.values, i))) return false;
    }
    return true;
  }

  bool sequences_hold() const {
    return std::all_of(sequences_.begin(), sequences_.end(), [](const Container& each) {
      return PyList_CheckExact(each.object) != 0 ? is_same_list(each) : is_same_set(each);
    });
  }

  static bool is_same_list(const Container& each) {
    PyObject** const first = PySequence_Fast_ITEMS(each.object);
    return PyList_GET_SIZE(each.object) == each.size() &&
           std::equal(first, first + each.size(), PySequence_Fast_ITEMS(each.values),
                      &is_same_object);
  }

  // By the values themselves: to a set, 1 and True are one.
  static bool is_same_set(const Container& each) {
    if (PySet_GET_SIZE(each.object) != each.size()) return false;
    PyObject* values = PyObject_GetIter(each.object);
    if (values == nullptr) return ignore_exception();
    PyObject** const first = PySequence_Fast_ITEMS(each.keys);
    bool is_same = true;
    for (Py_ssize_t i = 0; is_same && i < each.size(); ++i) {
      PyObject* value = PyIter_Next(values);
      const auto is_it = [value](PyObject* key) { return is_same_object(value, key); };
      // Usually in the same order as before.
      is_same =
          value != nullptr && (is_it(first[i]) || std::any_of(first, first + each.size(), is_it));
      Py_XDECREF(value);
    }
    Py_DECREF(values);
    return is_same;
  }

  bool tensors_hold() {
    const std::size_t size = tensors_.size();
    if (at_once_ == 0 || at_once_ >= size) {
      return std::all_of(tensors_.begin(), tensors_.end(),
                         [this](const Tensor& each) { return is_same(each); });
    }
    for (std::size_t i = 0; i < at_once_; ++i) {
      const std::size_t index = next_tensor_;
      next_tensor_ = index + 1 < size ? index + 1 : 0;
      if (!is_same(tensors_[index])) return false;
    }
    return true;
  }

  bool is_same(const Tensor& each) const {
    if (each.view.exists()) {
      const std::int64_t* sizes = sizes_.data() + each.sizes;
      return each.view.is_at(each.address, each.rank, sizes, sizes + each.rank);
    }
    if (each.attributes) return has_attributes(each.tensor, each.attributes.ptr());
    ArrayDesc now;  // NOLINT: its storage is written where it is used
    return read_array(each.tensor, now) && has_facts(each, now);
  }

  [[nodiscard]] bool has_facts(const Tensor& each, const ArrayDesc& now) const {
    const std::int64_t* sizes = sizes_.data() + each.sizes;
    return now.address == each.address && now.rank == each.rank && now.device == each.device &&
           now.dtype == each.dtype && std::equal(now.shape, now.shape + each.rank, sizes) &&
           std::equal(now.strides, now.strides + each.rank, sizes + each.rank);
  }

  // Their tuples own all objects that are compared; null once these are gone.
  py::object kept_containers_;
  py::object kept_tensors_;
  std::vector<Container> dicts_;
  std::vector<Container> sequences_;  // lists and sets
  std::vector<Owned> owned_;
  std::vector<Tensor> tensors_;
  std::vector<std::int64_t> sizes_;  // of all tensors
  std::size_t at_once_ = 0;
  std::size_t next_tensor_ = 0;
  bool is_watching_ = false;
  bool is_changed_ = true;  // since the dicts were compared
  bool flagged_ = false;
};

Guards& guards_of(PyObject* object) { return unchecked<Guards>(object); }

}  // namespace

void check_guards(py::handle object) {
  if (!py::isinstance<Guards>(object)) throw py::type_error("guards: not a _Guards");
}

bool guards_hold(PyObject* guards) { return guards_of(guards).hold(); }

void bind_guards(py::module_& module) {
  py::class_<Guards> type(module, "_Guards", collectable<&guards_of>(),
                          "What a graph takes for granted of containers and of tensors.");
  type.def(py::init([](const AnyTuple& containers, const AnyTuple& tensors, std::size_t at_once) {
             return std::make_unique<Guards>(containers, tensors, at_once);
           }),
           py::arg("containers"), py::arg("tensors"), py::arg("at_once"))
      .def("hold", &Guards::hold)
      .def("flag", &Guards::flag);
  type.attr("ABSENT") = py::reinterpret_borrow<py::object>(absent());
}

}  // namespace gpuprof::bindings
