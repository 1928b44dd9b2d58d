// The call of a graphed callable: the entry that it fits, most recently used first, or Python.
//
// `CallBase` is the base class of gpuprof.GraphedCallable, which answers what no entry fits: by
// `_miss(args, kwargs)`, where what a graph was captured with has changed by
// `_stale(args, kwargs, entry)`, where the call is to be compared with the function by
// `_verified(args, kwargs, entry)`, and on a stream that is being captured by
// `_eagerly(args, kwargs)`.
#include <pybind11/pybind11.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "bindings/bind.hpp"
#include "bindings/callable/cache_entry.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/objects.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

struct CallObject {
  PyObject_HEAD PyObject* entries;  // a list, most recently used first
  unsigned long long hits;
};

PyObject* no_fit = nullptr;  // what `_run` answers in place of a result

CallObject& call_object(PyObject* self) { return *reinterpret_cast<CallObject*>(self); }

PyObject* make_call(PyTypeObject* type, PyObject* /*args*/, PyObject* /*keywords*/) {
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  call_object(self).entries = PyList_New(0);
  if (call_object(self).entries == nullptr) Py_CLEAR(self);
  return self;
}

// A cycle is broken by the list, which the collector empties.
int traverse_call(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(call_object(self).entries);
  return 0;
}

void dealloc_call(PyObject* self) {
  PyObject_GC_UnTrack(self);
  Py_XDECREF(call_object(self).entries);
  free_object(self);
}

// Calls a method with the arguments of a call, and with the entry if there is one.
PyObject* ask_python(PyObject* self, PyObject* name, PyObject* args, PyObject* keywords,
                     PyObject* entry = nullptr) {
  PyObject* given = keywords != nullptr ? Py_NewRef(keywords) : checked(PyDict_New());
  PyObject* result = PyObject_CallMethodObjArgs(self, name, args, given, entry, nullptr);
  Py_DECREF(given);
  return checked(result);
}

void move_to_front(PyObject* entries, PyObject* entry) {
  PyObject** const first = PySequence_Fast_ITEMS(entries);
  PyObject** const last = first + PyList_GET_SIZE(entries);
  PyObject** const found = std::find(first, last, entry);
  if (found != last) std::rotate(first, found, found + 1);
}

enum class Answer { kNo, kStale, kVerify, kCapturing, kYes };

// `result` is a new reference where the answer is kYes. `entry` is kept by the caller.
// `verifies` says that the caller can compare a call with the function.
Answer answer_by(PyObject* entry, PyObject* args, PyObject* keywords, bool verifies,
                 PyObject*& result) {
  CacheEntry& cached = call_entry(entry);
  std::unique_ptr<CallBuffers> buffers = cached.take_buffers();
  const auto try_entry = [&] {
    if (!cached.matches(args, keywords, *buffers) || !cached.state_is_as_captured())
      return Answer::kNo;
    if (!cached.guards_hold()) return Answer::kStale;
    if (verifies && cached.is_to_be_verified()) return Answer::kVerify;
    result = cached.run(*buffers);
    return result != nullptr ? Answer::kYes : Answer::kCapturing;
  };
  const Answer answer = with_cleanup(try_entry, [&] { buffers->let_go(); });
  cached.give_back(std::move(buffers));
  return answer;
}

PyObject* call_with(PyObject* self, PyObject* args, PyObject* keywords) {
  static PyObject* const miss = interned("_miss");
  static PyObject* const stale = interned("_stale");
  static PyObject* const verified = interned("_verified");
  static PyObject* const in_capture = interned("_eagerly");
  PyObject* const entries = call_object(self).entries;
  // Python code that runs meanwhile may change the list: then an entry is looked at twice, or not
  // at all, and Python finds it.
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(entries); ++i) {
    PyObject* entry = PyList_GET_ITEM(entries, i);
    PyObject* result = nullptr;
    Answer answer = Answer::kNo;
    keeping(entry, [&] {
      answer = answer_by(entry, args, keywords, /*verifies=*/true, result);
      if (answer == Answer::kStale) result = ask_python(self, stale, args, keywords, entry);
      if (answer == Answer::kVerify) result = ask_python(self, verified, args, keywords, entry);
      if (answer != Answer::kYes) return;
      move_to_front(entries, entry);
      ++call_object(self).hits;
    });
    if (answer == Answer::kCapturing) return ask_python(self, in_capture, args, keywords);
    if (answer != Answer::kNo) return result;
  }
  return ask_python(self, miss, args, keywords);
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
  if (!is_entry(entry) || PyList_Insert(call_object(self).entries, 0, entry) != 0) return nullptr;
  Py_RETURN_NONE;
}

PyObject* remove_entry(PyObject* self, PyObject* entry) {
  PyObject* const entries = call_object(self).entries;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(entries); ++i) {
    if (PyList_GET_ITEM(entries, i) != entry) continue;
    if (PyList_SetSlice(entries, i, i + 1, nullptr) != 0) return nullptr;
    Py_RETURN_TRUE;
  }
  Py_RETURN_FALSE;
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
  return guarded<PyObject*>(nullptr, [&] {
    static PyObject* const in_capture = interned("_eagerly");
    PyObject* result = nullptr;
    const Answer answer =
        answer_by(arguments[0], arguments[1], arguments[2], /*verifies=*/false, result);
    if (answer == Answer::kCapturing)
      return ask_python(self, in_capture, arguments[1], arguments[2]);
    if (answer != Answer::kYes) return Py_NewRef(no_fit);
    move_to_front(call_object(self).entries, arguments[0]);
    return result;
  });
}

PyObject* get_entries(PyObject* self, void* /*closure*/) {
  // To make a tuple may run code that changes the entries. A list of its own grows without.
  PyObject* copy = PyList_New(0);
  if (copy == nullptr) return nullptr;
  const bool is_copied = PyList_SetSlice(copy, 0, 0, call_object(self).entries) == 0;
  PyObject* result = is_copied ? PyList_AsTuple(copy) : nullptr;
  Py_DECREF(copy);
  return result;
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
