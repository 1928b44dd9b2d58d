// The call of a graphed callable: the entry that it fits, most recently used first, or Python.
//
// `CallBase` is the base class of gpuprof.GraphedCallable, which answers what no entry fits: by
// `_miss(args, kwargs)`, where what a graph was captured with has changed by
// `_stale(entry, args, kwargs)`, where the call is to be compared with the function by
// `_verified(entry, args, kwargs)`, and on a stream that is being captured by
// `_eagerly(args, kwargs)`.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
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

using Entries = std::vector<py::object>;

struct Calls {
  Entries entries;  // most recently used first
  std::uint64_t hits = 0;

  int traverse(visitproc visit, void* arg) const {
    for (const py::object& entry : entries) Py_VISIT(entry.ptr());
    return 0;
  }
  void clear() { const Entries gone = std::exchange(entries, {}); }
};

Calls& calls_of(PyObject* self) { return unchecked<Calls>(self); }

PyObject* no_fit = nullptr;  // what `_run` answers in place of a result

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

Entries::iterator find_entry(Entries& entries, const CacheEntry& entry) {
  return std::find_if(entries.begin(), entries.end(), [&entry](const py::object& each) {
    return &call_entry(each.ptr()) == &entry;
  });
}

void move_to_front(Entries& entries, const CacheEntry& entry) {
  const auto found = find_entry(entries, entry);
  if (found != entries.end()) std::rotate(entries.begin(), found, found + 1);
}

enum class Answer { kNo, kStale, kVerify, kCapturing, kYes };

// `result` is a new reference where the answer is kYes. The entry is kept by the caller.
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
Answer answer_by(CacheEntry& cached, PyObject* args, PyObject* keywords, bool verifies,
                 PyObject*& result) {
  std::unique_ptr<CallBuffers> buffers = cached.take_buffers();
  const Answer answer =
      with_cleanup([&] { return try_entry(cached, args, keywords, verifies, *buffers, result); },
                   [&] { buffers->let_go(); });
  cached.give_back(std::move(buffers));
  return answer;
}

PyObject* call_with(PyObject* self, PyObject* args, PyObject* keywords) {
  static PyObject* const miss = interned("_miss");
  static PyObject* const stale = interned("_stale");
  static PyObject* const verified = interned("_verified");
  static PyObject* const in_capture = interned("_eagerly");
  Calls& calls = calls_of(self);
  // Python code that runs meanwhile may change the list: then an entry is looked at twice, or not
  // at all, and Python finds it.
  for (std::size_t i = 0; i < calls.entries.size(); ++i) {
    PyObject* entry = Py_NewRef(calls.entries[i].ptr());
    PyObject* result = nullptr;
    const auto answer_call = [&] {
      CacheEntry& cached = call_entry(entry);
      const Answer answer = answer_by(cached, args, keywords, /*verifies=*/true, result);
      if (answer == Answer::kStale) result = ask_python(self, stale, entry, args, keywords);
      if (answer == Answer::kVerify) result = ask_python(self, verified, entry, args, keywords);
      if (answer == Answer::kYes) {
        move_to_front(calls.entries, cached);
        ++calls.hits;
      }
      return answer;
    };
    const Answer answer = with_cleanup(answer_call, [&] { Py_DECREF(entry); });
    if (answer == Answer::kCapturing) return ask_python(self, in_capture, nullptr, args, keywords);
    if (answer != Answer::kNo) return result;
  }
  return ask_python(self, miss, nullptr, args, keywords);
}

PyObject* call_entries(PyObject* self, PyObject* args, PyObject* keywords) {
  return guarded<PyObject*>(nullptr, [&] { return call_with(self, args, keywords); });
}

void add_entry(Calls& self, CacheEntry& entry) {
  self.entries.insert(self.entries.begin(), py::cast(&entry, py::return_value_policy::reference));
}

bool remove_entry(Calls& self, const CacheEntry& entry) {
  const auto found = find_entry(self.entries, entry);
  if (found == self.entries.end()) return false;
  const py::object gone = std::move(*found);
  self.entries.erase(found);
  return true;
}

// The result of a call that this entry is for, even if it is in no list; `_no_fit` where it is not,
// or what the function reads has changed.
py::object run_entry(py::handle self, CacheEntry& entry, py::handle args, py::handle kwargs) {
  static PyObject* const in_capture = interned("_eagerly");
  auto& calls = self.cast<Calls&>();
  if (PyTuple_Check(args.ptr()) == 0 || PyDict_Check(kwargs.ptr()) == 0) {
    throw py::type_error("_run(entry, args, kwargs)");
  }
  PyObject* result = nullptr;
  const Answer answer = answer_by(entry, args.ptr(), kwargs.ptr(), /*verifies=*/false, result);
  if (answer == Answer::kYes) {
    move_to_front(calls.entries, entry);
  } else if (answer == Answer::kCapturing) {
    result = ask_python(self.ptr(), in_capture, nullptr, args.ptr(), kwargs.ptr());
  } else {
    result = Py_NewRef(no_fit);
  }
  return py::reinterpret_steal<py::object>(result);
}

AnyTuple entries_of(const Calls& self) {
  const Entries entries = self.entries;  // to make the tuple may run code that changes the list
  return py::tuple(py::cast(entries));
}

}  // namespace

void bind_callable(py::module_& module) {
  const auto set_up = [](PyHeapTypeObject* type) {
    collectable<&calls_of>().value(type);
    type->ht_type.tp_call = &call_entries;
  };
  py::class_<Calls>(module, "CallBase", py::custom_type_setup(set_up),
                    "What a graphed callable has of its graphs.")
      .def(py::init<>())
      .def("_add", &add_entry, py::arg("entry"))
      .def("_remove", &remove_entry, py::arg("entry"))
      .def("_run", &run_entry, py::arg("entry"), py::arg("args"), py::arg("kwargs"))
      .def_property_readonly("_entries", &entries_of, "The entries, most recently used first.")
      .def_readonly("_hits", &Calls::hits, "How many calls an entry has answered without Python.");
  no_fit = py::module_::import("builtins").attr("object")().release().ptr();
  module.attr("_no_fit") = py::handle(no_fit);
}

}  // namespace gpuprof::bindings
