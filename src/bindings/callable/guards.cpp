#include "bindings/callable/guards.hpp"

#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
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
  // `containers`: tuples of (dict, list or set, ((key, value), ...), whole, owner). A whole dict
  // has these keys alone, in this order. Of another one no other key is looked at, and `ABSENT`
  // as a value says that the key is not there. `owner` is the object whose `__dict__` it has to be,
  // or None. A list has these values, a set these keys. `tensors`: tuples of (tensor, its
  // _core._array_facts or None). Each check compares all containers, and the next `at_once` tensors
  // in turn; 0 is all of them. Throws py::value_error and py::cast_error for anything else.
  Guards(const py::tuple& containers, const py::tuple& tensors, std::size_t at_once)
      : at_once_(at_once) {
    for (const py::handle each : containers) add_container(each);
    for (const py::handle each : tensors) add_tensor(each);
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
    for (const auto* all : {&dicts_, &sequences_}) {
      for (const Container& each : *all) {
        Py_VISIT(each.object.ptr());
        Py_VISIT(each.owner.ptr());
      }
    }
    for (const Entry& each : entries_) {
      Py_VISIT(each.key.ptr());
      Py_VISIT(each.expected.ptr());
    }
    for (const Tensor& each : tensors_) {
      Py_VISIT(each.tensor.ptr());
      Py_VISIT(each.attributes.ptr());
    }
    return 0;
  }

  void clear() {
    flagged_ = true;
    stop_watching();
    is_watching_ = false;
    // Destructors of Python's objects may come back here.
    owned_.clear();
    const auto dicts = std::exchange(dicts_, {});
    const auto sequences = std::exchange(sequences_, {});
    const auto entries = std::exchange(entries_, {});
    const auto tensors = std::exchange(tensors_, {});
  }

 private:
  struct Entry {
    py::object key;
    py::object expected;  // absent() for none
  };
  struct Container {
    py::object object;
    py::object owner;       // of a `__dict__`; else None
    std::size_t first = 0;  // of its entries
    std::size_t last = 0;   // the one after them
    bool whole = false;
    std::uint64_t version = 0;  // when it was compared; 0 is no dict's
  };
  struct Owned {
    PyObject* const* place;  // where the owner has its `__dict__`
    PyObject* dict;
  };
  struct Tensor {
    py::object tensor;
    py::object attributes;  // where no protocol tells of it; else null
    TorchTensorView view;
    std::uintptr_t address = 0;
    DlDevice device{kDlpackCuda, 0};
    DlDataType dtype{0, 0, 1};
    int rank = 0;
    std::size_t sizes = 0;  // where its sizes begin in `sizes_`, and after them its strides
  };

  void add_container(py::handle described) {
    const auto parts = py::cast<py::tuple>(described);
    if (parts.size() != 4) {
      throw py::value_error("a guarded container is (container, entries, whole, owner)");
    }
    Container each{parts[0], parts[3], entries_.size(), 0, parts[2].cast<bool>(), 0};
    PyObject* const object = each.object.ptr();
    const bool is_dict = PyDict_Check(object) != 0;
    if (!is_dict && !PyList_CheckExact(object) && !PySet_CheckExact(object)) {
      throw py::value_error("only a dict, a list or a set can be guarded");
    }
    for (const py::handle entry : py::cast<py::tuple>(parts[1])) {
      const auto [key, expected] = entry.cast<std::pair<py::object, py::object>>();
      entries_.push_back({key, expected});
    }
    each.last = entries_.size();
    if (!each.owner.is_none()) {
      PyObject* const* place = _PyObject_GetDictPtr(each.owner.ptr());
      if (place != nullptr) owned_.push_back({place, object});
    }
    (is_dict ? dicts_ : sequences_).push_back(std::move(each));
  }

  void add_tensor(py::handle described) {
    const auto parts = py::cast<py::tuple>(described);
    if (parts.size() != 2) throw py::value_error("a guarded tensor is (tensor, facts)");
    Tensor each;
    each.tensor = parts[0];
    if (parts[1].is_none()) {
      each.attributes = attributes_of(each.tensor.ptr());
      if (!each.attributes)
        throw py::value_error("a tensor that does not tell where its memory is");
    } else {
      const ArrayFacts facts = array_facts(parts[1].ptr());
      each.address = facts.address;
      each.device = facts.device;
      each.dtype = facts.dtype;
      each.rank = static_cast<int>(facts.shape.size());
      each.sizes = sizes_.size();
      sizes_.insert(sizes_.end(), facts.shape.begin(), facts.shape.end());
      sizes_.insert(sizes_.end(), facts.strides.begin(), facts.strides.end());
      ArrayDesc now;  // NOLINT: its storage is written where it is used
      if (read_array(each.tensor.ptr(), now) && has_facts(each, now)) {
        each.view = TorchTensorView(each.tensor.ptr(), now);
      }
    }
    tensors_.push_back(std::move(each));
  }

  void watch() {
#if PY_VERSION_HEX >= 0x030C0000
    const int id = watcher_id();
    is_watching_ = id >= 0;
    for (const Container& each : dicts_) {
      if (!is_watching_) break;
      PyObject* dict = each.object.ptr();
      try {
        auto& all = watchers()[dict];
        is_watching_ = !all.empty() || ((each.owner.is_none() || move_values_into(dict)) &&
                                        PyDict_Watch(id, dict) == 0);
        if (is_watching_) all.push_back(&is_changed_);
      } catch (const std::bad_alloc&) {
        is_watching_ = false;
      }
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
    for (const Container& each : dicts_) remove_watcher(each.object.ptr(), &is_changed_);
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
      const auto version = reinterpret_cast<PyDictObject*>(each.object.ptr())->ma_version_tag;
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

  bool is_same_dict(const Container& each) const {
    PyObject* dict = each.object.ptr();
    if (each.whole && PyDict_GET_SIZE(dict) != static_cast<Py_ssize_t>(each.last - each.first)) {
      return false;
    }
    Py_ssize_t position = 0;
    for (std::size_t i = each.first; i < each.last; ++i) {
      const Entry& entry = entries_[i];
      PyObject* key = nullptr;
      PyObject* value = nullptr;
      if (each.whole) {
        if (PyDict_Next(dict, &position, &key, &value) == 0) return false;
        if (!is_same_object(key, entry.key.ptr())) return false;
      } else {
        value = PyDict_GetItemWithError(dict, entry.key.ptr());
        if (value == nullptr && PyErr_Occurred() != nullptr) return ignore_exception();
        if (value == nullptr) value = absent();
      }
      if (!is_same_object(value, entry.expected.ptr())) return false;
    }
    return true;
  }

  bool sequences_hold() const {
    return std::all_of(sequences_.begin(), sequences_.end(),
                       [this](const Container& each) { return is_same_sequence(each); });
  }

  bool is_same_sequence(const Container& each) const {
    PyObject* object = each.object.ptr();
    if (PyList_CheckExact(object) == 0) return is_same_set(each);
    const Py_ssize_t size = PyList_GET_SIZE(object);
    if (size != static_cast<Py_ssize_t>(each.last - each.first)) return false;
    for (Py_ssize_t i = 0; i < size; ++i) {
      const Entry& entry = entries_[each.first + static_cast<std::size_t>(i)];
      if (!is_same_object(PyList_GET_ITEM(object, i), entry.expected.ptr())) return false;
    }
    return true;
  }

  // By the values themselves: to a set, 1 and True are one.
  bool is_same_set(const Container& each) const {
    if (PySet_GET_SIZE(each.object.ptr()) != static_cast<Py_ssize_t>(each.last - each.first)) {
      return false;
    }
    PyObject* values = PyObject_GetIter(each.object.ptr());
    if (values == nullptr) return ignore_exception();
    const auto first = entries_.begin() + static_cast<std::ptrdiff_t>(each.first);
    const auto last = entries_.begin() + static_cast<std::ptrdiff_t>(each.last);
    bool is_same = true;
    for (std::size_t i = each.first; is_same && i < each.last; ++i) {
      PyObject* value = PyIter_Next(values);
      const auto is_it = [value](const Entry& entry) {
        return is_same_object(value, entry.key.ptr());
      };
      // Usually in the same order as before.
      is_same = value != nullptr && (is_it(entries_[i]) || std::any_of(first, last, is_it));
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
    PyObject* tensor = each.tensor.ptr();
    if (each.view.exists()) {
      const std::int64_t* sizes = sizes_.data() + each.sizes;
      return each.view.is_at(each.address, each.rank, sizes, sizes + each.rank);
    }
    if (each.attributes) return has_attributes(tensor, each.attributes.ptr());
    ArrayDesc now;  // NOLINT: its storage is written where it is used
    return read_array(tensor, now) && has_facts(each, now);
  }

  [[nodiscard]] bool has_facts(const Tensor& each, const ArrayDesc& now) const {
    const std::int64_t* sizes = sizes_.data() + each.sizes;
    return now.address == each.address && now.rank == each.rank && now.device == each.device &&
           now.dtype == each.dtype && std::equal(now.shape, now.shape + each.rank, sizes) &&
           std::equal(now.strides, now.strides + each.rank, sizes + each.rank);
  }

  std::vector<Container> dicts_;
  std::vector<Container> sequences_;  // lists and sets
  std::vector<Owned> owned_;
  std::vector<Entry> entries_;  // of all containers
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
