// The call of a graphed callable: the entry that it fits, most recently used first, or Python.
//
// `CallBase` is the base class of gpuprof.GraphedCallable, which answers what no entry fits: by
// `_miss(args, kwargs)`, where what a graph was captured with has changed by
// `_stale(entry, args, kwargs)`, where the call is to be compared with the function by
// `_verified(entry, args, kwargs)`, and on a stream that is being captured by
// `_eagerly(args, kwargs)`.
#include <pybind11/pybind11.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/callable/cache_entry.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/objects.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

struct CallObject {
  PyObject_HEAD                         // NOLINT
      std::vector<PyObject*>* entries;  // owned, most recently used first
  unsigned long long hits;
};

PyObject* no_fit = nullptr;  // what `_run` answers in place of a result

CallObject& call_object(PyObject* self) { return *reinterpret_cast<CallObject*>(self); }

PyObject* make_call(PyTypeObject* type, PyObject* /*args*/, PyObject* /*keywords*/) {
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  return guarded<PyObject*>(nullptr, [&] {
    call_object(self).entries = new std::vector<PyObject*>;
    return self;
  });
}

int traverse_call(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (call_object(self).entries == nullptr) return 0;
  for (PyObject* entry : *call_object(self).entries) Py_VISIT(entry);
  return 0;
}

int clear_call(PyObject* self) {
  if (call_object(self).entries == nullptr) return 0;
  std::vector<PyObject*> entries;
  entries.swap(*call_object(self).entries);
  for (PyObject* entry : entries) Py_DECREF(entry);
  return 0;
}

void dealloc_call(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear_call(self);
  delete call_object(self).entries;
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* ask_python(PyObject* self, PyObject* name, PyObject* entry, PyObject* args,
                     PyObject* keywords) {
  PyObject* none = keywords != nullptr ? nullptr : PyDict_New();
  PyObject* given = keywords != nullptr ? keywords : none;
  PyObject* result = nullptr;
  if (given != nullptr) {
    result = entry != nullptr ? PyObject_CallMethodObjArgs(self, name, entry, args, given, nullptr)
                              : PyObject_CallMethodObjArgs(self, name, args, given, nullptr);
  }
  Py_XDECREF(none);
  return checked(result);
}

void move_to_front(std::vector<PyObject*>& entries, PyObject* entry) {
  if (!entries.empty() && entries.front() == entry) return;
  const auto found = std::find(entries.begin(), entries.end(), entry);
  if (found != entries.end()) std::rotate(entries.begin(), found, found + 1);
}

enum class Answer { kNo, kStale, kVerify, kCapturing, kYes };

// `result` is a new reference where the answer is kYes. `entry` is kept by the caller.
// `verifies` says that the caller can compare a call with the function.
Answer try_entry(CacheEntry& cached, PyObject* args, PyObject* keywords, bool verifies,
                 CallBuffers& buffers, PyObject*& result) {
  if (!cached.matches(args, keywords, buffers) || !cached.state_is_as_captured())
    return Answer::kNo;
  if (!cached.guards_hold()) return Answer::kStale;
  if (verifies && cached.is_to_be_verified()) return Answer::kVerify;
  result = cached.run(buffers);
  return result != nullptr ? Answer::kYes : Answer::kCapturing;
}

// The same, letting go of what it takes.
Answer answer_by(PyObject* entry, PyObject* args, PyObject* keywords, bool verifies,
                 PyObject*& result) {
  CacheEntry& cached = call_entry(entry);
  std::unique_ptr<CallBuffers> buffers = cached.take_buffers();
  Answer answer = Answer::kNo;
  try {
    answer = try_entry(cached, args, keywords, verifies, *buffers, result);
  } catch (const std::exception&) {
    buffers->let_go();
    throw;
  }
  buffers->let_go();
  cached.give_back(std::move(buffers));
  return answer;
}

PyObject* call_with(PyObject* self, PyObject* args, PyObject* keywords) {
  static PyObject* const miss = interned("_miss");
  static PyObject* const stale = interned("_stale");
  static PyObject* const verified = interned("_verified");
  static PyObject* const in_capture = interned("_eagerly");
  auto& entries = *call_object(self).entries;
  // Python code that runs meanwhile may change the list: then an entry is looked at twice, or not
  // at all, and Python finds it.
  for (std::size_t i = 0; i < entries.size(); ++i) {
    PyObject* entry = entries[i];
    PyObject* result = nullptr;
    Answer answer = Answer::kNo;
    Py_INCREF(entry);
    try {
      answer = answer_by(entry, args, keywords, /*verifies=*/true, result);
      if (answer == Answer::kStale) result = ask_python(self, stale, entry, args, keywords);
      if (answer == Answer::kVerify) result = ask_python(self, verified, entry, args, keywords);
    } catch (const std::exception&) {
      Py_DECREF(entry);
      throw;
    }
    if (answer == Answer::kYes) {
      move_to_front(entries, entry);
      ++call_object(self).hits;
    }
    Py_DECREF(entry);
    if (answer == Answer::kCapturing) return ask_python(self, in_capture, nullptr, args, keywords);
    if (answer != Answer::kNo) return result;
  }
  return ask_python(self, miss, nullptr, args, keywords);
}

PyObject* call_entries(PyObject* self, PyObject* args, PyObject* keywords) {
  return guarded<PyObject*>(nullptr, [&] { return call_with(self, args, keywords); });
}

bool is_entry(PyObject* object) {
  static PyObject* const type = py::type::of<CacheEntry>().release().ptr();
  if (PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(type)) != 0) return true;
  PyErr_SetString(PyExc_TypeError, "expected a _CacheEntry");
  return false;
}

PyObject* add_entry(PyObject* self, PyObject* entry) {
  if (!is_entry(entry)) return nullptr;
  return guarded<PyObject*>(nullptr, [&] {
    auto& entries = *call_object(self).entries;
    entries.insert(entries.begin(), entry);
    Py_INCREF(entry);
    return Py_NewRef(Py_None);
  });
}

PyObject* remove_entry(PyObject* self, PyObject* entry) {
  auto& entries = *call_object(self).entries;
  const auto found = std::find(entries.begin(), entries.end(), entry);
  const bool was_there = found != entries.end();
  if (was_there) {
    entries.erase(found);
    Py_DECREF(entry);
  }
  return PyBool_FromLong(was_there);
}

// _run(entry, args, kwargs): the result of a call that this entry is for, even if it is in no list;
// `_no_fit` where it is not, or what the function reads has changed.
PyObject* run_entry(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  const bool right =
      count == 3 && PyTuple_Check(arguments[1]) != 0 && PyDict_Check(arguments[2]) != 0;
  if (!right) {
    PyErr_SetString(PyExc_TypeError, "_run(entry, args, kwargs)");
    return nullptr;
  }
  if (!is_entry(arguments[0])) return nullptr;
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    static PyObject* const in_capture = interned("_eagerly");
    PyObject* result = nullptr;
    switch (answer_by(arguments[0], arguments[1], arguments[2], /*verifies=*/false, result)) {
      case Answer::kYes:
        move_to_front(*call_object(self).entries, arguments[0]);
        return result;
      case Answer::kCapturing:
        return ask_python(self, in_capture, nullptr, arguments[1], arguments[2]);
      case Answer::kStale:
      case Answer::kNo:
      case Answer::kVerify:  // not asked for
        break;
    }
    return Py_NewRef(no_fit);
  });
}

PyObject* get_entries(PyObject* self, void* /*closure*/) {
  return guarded<PyObject*>(nullptr, [&] {
    // Making the tuple may run code that changes the list.
    std::vector<py::object> entries;
    for (PyObject* entry : *call_object(self).entries) {
      entries.push_back(py::reinterpret_borrow<py::object>(entry));
    }
    py::tuple result(entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) result[i] = entries[i];
    return result.release().ptr();
  });
}

PyObject* get_hits(PyObject* self, void* /*closure*/) {
  return PyLong_FromUnsignedLongLong(call_object(self).hits);
}

PyGetSetDef call_getset[] = {
    {"_entries", get_entries, nullptr, "The entries, most recently used first.", nullptr},
    {"_hits", get_hits, nullptr, "How many calls an entry has answered without Python.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMethodDef call_methods[] = {
    {"_add", add_entry, METH_O,
     "_add(self: gpuprof._core.CallBase, entry: gpuprof._core._CacheEntry) -> None"},
    {"_remove", remove_entry, METH_O,
     "_remove(self: gpuprof._core.CallBase, entry: gpuprof._core._CacheEntry) -> bool"},
    {"_run", as_method(&run_entry), METH_FASTCALL,
     "_run(self: gpuprof._core.CallBase, entry: gpuprof._core._CacheEntry, args: tuple[typing.Any, "
     "...], kwargs: dict[str, typing.Any]) -> typing.Any"},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot call_slots[] = {
    {Py_tp_doc, const_cast<char*>("What a graphed callable has of its graphs.")},
    {Py_tp_new, reinterpret_cast<void*>(&make_call)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&dealloc_call)},
    {Py_tp_traverse, reinterpret_cast<void*>(&traverse_call)},
    {Py_tp_clear, reinterpret_cast<void*>(&clear_call)},
    {Py_tp_call, reinterpret_cast<void*>(&call_entries)},
    {Py_tp_getset, call_getset},
    {Py_tp_methods, call_methods},
    {0, nullptr}};

PyType_Spec call_spec = {"gpuprof._core.CallBase", sizeof(CallObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, call_slots};

}  // namespace

void bind_callable(py::module_& module) {
  add_type(module, call_spec);
  no_fit = py::module_::import("builtins").attr("object")().release().ptr();
  module.attr("_no_fit") = py::handle(no_fit);
}

}  // namespace gpuprof::bindings
