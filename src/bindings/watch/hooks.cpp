// The hooks that Python puts on modules, those on autograd's nodes, and the classes of a watch.
#include <pybind11/stl.h>

#include "bindings/bind.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/watch/watch.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using namespace watch;

namespace {

// Runs what only watches: its failure ends the watch, and not the program that it watches.
template <typename Work>
PyObject* passive(PyObject* watch, Work&& work) {
  const bool is_done = guarded<bool>(false, [&] {
    work(unchecked<Watch>(watch));
    return true;
  });
  if (!is_done) {
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) return nullptr;
    TakenException raised;
    raised.normalize();
    PyObject* told = PyObject_CallMethod(watch, "fail", "O", raised.value);
    raised.drop();
    if (told == nullptr) return nullptr;
    Py_DECREF(told);
  }
  Py_RETURN_NONE;
}

// The hook of a module, before and after its calls: these differ in the number of arguments.
struct HookObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* watch;
  PyObject* entries;
};

PyObject* call_hook(PyObject* self, PyObject* const* arguments, size_t count, PyObject* /*names*/) {
  const auto* hook = reinterpret_cast<HookObject*>(self);
  return passive(hook->watch, [&](Watch& watch) {
    if (watch.is_compiling() || watch.closed()) return;  // no Python runs in a compiled region
    if (PyVectorcall_NARGS(count) == 2) {
      watch.enter(hook->watch, hook->entries, reinterpret_cast<PyObject*>(PyEval_GetFrame()));
      return;
    }
    PyObject* error = handled_exception();
    keeping(error, [&] {
      Py_DECREF(error);
      watch.leave(hook->entries, arguments[0], arguments[2], error);
    });
  });
}

PyObject* bind_hook(PyObject* self, PyObject* arguments) {
  auto* hook = reinterpret_cast<HookObject*>(self);
  PyObject *watch = nullptr, *entries = nullptr;
  if (PyArg_ParseTuple(arguments, "OO!", &watch, &PyList_Type, &entries) == 0) return nullptr;
  if (hook->watch != nullptr || !py::isinstance<Watch>(watch)) {
    PyErr_SetString(PyExc_TypeError, "a hook is made once, of a watch and a list of entries");
    return nullptr;
  }
  hook->vectorcall = &call_hook;
  hook->watch = Py_NewRef(watch);
  hook->entries = Py_NewRef(entries);
  Py_RETURN_NONE;
}

PyMethodDef hook_methods[] = {
    {"_bind", bind_hook, METH_VARARGS,
     "_bind(self: gpuprof._core._WatchHook, watch: gpuprof._core._Watch, entries: "
     "list[typing.Any], /) -> None\n\nMake it a hook of a module with these entries."},
    {nullptr, nullptr, 0, nullptr}};

void dealloc_hook(PyObject* self) {
  Py_XDECREF(reinterpret_cast<HookObject*>(self)->watch);
  Py_XDECREF(reinterpret_cast<HookObject*>(self)->entries);
  free_object(self);
}

PyType_Slot hook_slots[] = {{Py_tp_doc, const_cast<char*>("A hook of a watched module.")},
                            {Py_tp_methods, hook_methods},
                            {Py_tp_dealloc, reinterpret_cast<void*>(&dealloc_hook)},
                            {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
                            {Py_tp_members, vectorcall_members},
                            {0, nullptr}};

PyType_Spec hook_spec = {"gpuprof._core._WatchHook", sizeof(HookObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_VECTORCALL,
                         hook_slots};

// Has objects of a subclass that defines __call__ called as those of the base are.
void keep_vectorcall(const py::type& subclass) {
  auto* type = reinterpret_cast<PyTypeObject*>(subclass.ptr());
  type->tp_call = &PyVectorcall_Call;
  type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
}

void bind_sums(py::module_& module) {
  py::class_<Pass>(module, "_WatchedPass", "The sums of one module's passes of one kind.")
      .def_readonly("calls", &Pass::calls)
      .def_readonly("timed", &Pass::timed)
      .def_readonly("failed", &Pass::failed)
      .def_readonly("dropped", &Pass::dropped)
      .def_readonly("skipped", &Pass::skipped)
      .def_readonly("pending", &Pass::pending)
      .def_readonly("all_ms", &Pass::all_ms)
      .def_readonly("outermost_ms", &Pass::outermost_ms)
      .def_readonly("inside_ms", &Pass::inside_ms)
      .def_readonly("below_ms", &Pass::below_ms)
      .def_readonly("captured", &Pass::captured);
  py::class_<Entry>(module, "_WatchedEntry", "The passes of a module in one place.")
      .def(py::init([](const py::object& its_module, Entry* caller) {
             return std::make_unique<Entry>(its_module.ptr(), caller);
           }),
           py::arg("module"), py::arg("caller").none(true))
      .def_readonly("forward", &Entry::forward)
      .def_readonly("recomputed", &Entry::recomputed)
      .def_readonly("backward", &Entry::backward)
      .def_readonly("activation_bytes", &Entry::activation_bytes);
}

}  // namespace

PyObject* Call::called(PyObject* self, PyObject* const* /*gradients*/, size_t count,
                       PyObject* /*names*/) {
  return passive(call_of(self).watch.ptr(), [&](Watch& watch) {
    if (PyVectorcall_NARGS(count) == 2) {
      watch.end_backward(self);
    } else if (!watch.closed()) {
      watch.begin_backward(self);
    }
  });
}

PyObject* Task::called(PyObject* self, PyObject* const* /*none*/, size_t /*count*/,
                       PyObject* /*names*/) {
  Task& task = Callable<Task>::of(self);
  return passive(task.watch.ptr(), [&](Watch& watch) { watch.finish(task); });
}

void bind_watch(py::module_& module) {
  add_type(module, hook_spec);
  module.def("_keep_vectorcall", &keep_vectorcall, py::arg("subclass"));
  bind_sums(module);
  py::class_<Watch>(module, "_Watch", "What the hooks of one watch share.")
      .def(py::init<const py::kwargs&>())
      .def(
          "enter",
          [](const py::object& self, py::handle entries, py::handle frame) {
            self.cast<Watch&>().enter(self, entries.ptr(), frame.ptr());
          },
          py::arg("entries"), py::arg("frame"))
      .def("leave", &Watch::leave, py::arg("entries"), py::arg("module"), py::arg("result"),
           py::arg("error"))
      .def("end", &Watch::end)
      .def(
          "fold", [](Watch& self, bool wait) { self.sums.fold(wait); }, py::arg("wait"))
      .def_property_readonly("closed", &Watch::closed)
      .def_property_readonly("entries", &Watch::entries, "In the order of the tree.")
      .def_property_readonly("scopes", &Watch::scopes, "Those that are not open.")
      .def_property_readonly("clocks", [](const Watch& self) {
        py::typing::List<py::str> names;
        for (const timing::ClockId each : self.sums.clocks())
          names.append(from_utf8(timing::clock_name(each)));
        return names;
      });
}

}  // namespace gpuprof::bindings
