// Decorated functions, called without their Python wrapper wherever it would do nothing.
//
// gpuprof._timing.decorate wraps a function in a Python function, so that tools find a real
// function with its kind, name and code. Running such a wrapper costs 100 ns and more before
// anything is measured. _shorten() gives it another vectorcall:
//
// - Off, a function or coroutine function is called as if it were not decorated. A generator of a
//   scope looks at the switch at each resume, so its wrapper is passed over only where the scope is
//   off for good.
// - On, a plain function is entered, called and left here. The other kinds run their wrapper.
// - While something else evaluates frames, as torch.compile's tracer does, it must see the wrapper.
//
// Python 3.11 runs a function that Python code calls without asking for its vectorcall, so there
// the wrapper runs.
//
// A daemon thread may end in any call from here and unwind through: nothing owned is in RAII.
#include <pybind11/pybind11.h>

#include "bindings/bind.hpp"
#include "bindings/nvtx/annotation.hpp"
#include "bindings/python/context_manager.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/timing/scope.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

vectorcallfunc run_wrapper = nullptr;  // that of every Python function
PyInterpreterState* interpreter = nullptr;

template <typename Owner>
PyTypeObject* class_of = nullptr;

struct Closure {
  PyObject* function;
  PyObject* owner;
};

// Their order is that of the names in the wrappers: `function`, then `scope`.
Closure closure_of(PyObject* wrapper) {
  PyObject* cells = PyFunction_GET_CLOSURE(wrapper);
  return {PyCell_GET(PyTuple_GET_ITEM(cells, 0)), PyCell_GET(PyTuple_GET_ITEM(cells, 1))};
}

template <typename Owner>
bool can_pass_over(const Closure& closure) {  // cells can be written to
  return closure.function != nullptr && closure.owner != nullptr &&
         Py_TYPE(closure.owner) == class_of<Owner> &&
         _PyInterpreterState_GetEvalFrameFunc(interpreter) == &_PyEval_EvalFrameDefault;
}

PyObject* call_directly(PyObject* function, PyObject* const* arguments, size_t flagged_count,
                        PyObject* keywords) {
  Py_INCREF(function);
  PyObject* result = PyObject_Vectorcall(function, arguments, flagged_count, keywords);
  Py_DECREF(function);
  return result;
}

void enter_owner(Scope& scope) {
  PyObject* sample = scope.enter();
  Py_DECREF(sample);
}
void enter_owner(Annotation& annotation) { annotation.enter(); }

// With an exception set, which stays; one that comes from here has it as its context, as in a with
// statement.
template <typename Owner>
void leave_failed(Owner& owner) {
  TakenException raised;
  try {
    owner.exit(true);
  } catch (const std::exception&) {
    raised.normalize();
    if (raised.traceback != nullptr) PyException_SetTraceback(raised.value, raised.traceback);
    PyObject* context = Py_NewRef(raised.value);
    raised.drop();
    set_current_exception();
    raised = TakenException();
    raised.normalize();
    PyException_SetContext(raised.value, context);
  }
  raised.put_back();
}

template <typename Owner>
PyObject* call_inside(Owner& owner, PyObject* function, PyObject* const* arguments,
                      size_t flagged_count, PyObject* keywords) {
  enter_owner(owner);
  PyObject* result = call_directly(function, arguments, flagged_count, keywords);
  if (result == nullptr) {
    leave_failed(owner);
    return nullptr;
  }
  or_undo([&] { owner.exit(false); }, [&] { Py_DECREF(result); });
  return result;
}

template <typename Owner>
PyObject* call_function(PyObject* wrapper, PyObject* const* arguments, size_t flagged_count,
                        PyObject* keywords) {
  const Closure closure = closure_of(wrapper);
  if (!can_pass_over<Owner>(closure)) {
    return run_wrapper(wrapper, arguments, flagged_count, keywords);
  }
  return guarded<PyObject*>(nullptr, [&] {
    auto& owner = unchecked<Owner>(closure.owner);
    if (owner.is_off()) {
      return call_directly(closure.function, arguments, flagged_count, keywords);
    }
    Py_INCREF(closure.owner);
    return with_cleanup(
        [&] { return call_inside(owner, closure.function, arguments, flagged_count, keywords); },
        [&] { Py_DECREF(closure.owner); });
  });
}

template <typename Owner, bool (Owner::*kIsOff)() const>
PyObject* call_unless_on(PyObject* wrapper, PyObject* const* arguments, size_t flagged_count,
                         PyObject* keywords) {
  const Closure closure = closure_of(wrapper);
  if (!can_pass_over<Owner>(closure)) {
    return run_wrapper(wrapper, arguments, flagged_count, keywords);
  }
  return guarded<PyObject*>(nullptr, [&] {
    const bool off = (unchecked<Owner>(closure.owner).*kIsOff)();
    return off ? call_directly(closure.function, arguments, flagged_count, keywords)
               : run_wrapper(wrapper, arguments, flagged_count, keywords);
  });
}

// Null where the wrapper must run.
vectorcallfunc call_for(int code_flags, PyObject* owner) {
  const bool is_scope = Py_TYPE(owner) == class_of<Scope>;
  if ((code_flags & (CO_GENERATOR | CO_ASYNC_GENERATOR)) != 0) {
    const bool never_on = is_scope && unchecked<Scope>(owner).is_off_for_good();
    return never_on ? &call_unless_on<Scope, &Scope::is_off> : nullptr;
  }
  if ((code_flags & CO_COROUTINE) != 0) {
    return is_scope ? &call_unless_on<Scope, &Scope::is_off>
                    : &call_unless_on<Annotation, &Annotation::starts_nothing>;
  }
  return is_scope ? &call_function<Scope> : &call_function<Annotation>;
}

void set_vectorcall(PyObject* wrapper, vectorcallfunc call) {
  auto* function = reinterpret_cast<PyFunctionObject*>(wrapper);
#if PY_VERSION_HEX >= 0x030C0000
  PyFunction_SetVectorcall(function, call);
#else
  function->vectorcall = call;
#endif
}

py::object shorten(const py::object& wrapper) {
  PyObject* raw = wrapper.ptr();
  PyObject* cells = PyFunction_Check(raw) != 0 ? PyFunction_GET_CLOSURE(raw) : nullptr;
  if (cells == nullptr || PyTuple_GET_SIZE(cells) != 2) {
    throw py::type_error("expected a wrapper of gpuprof._timing.decorate");
  }
  PyObject* owner = closure_of(raw).owner;
  if (owner == nullptr ||
      (Py_TYPE(owner) != class_of<Scope> && Py_TYPE(owner) != class_of<Annotation>)) {
    throw py::type_error("expected a wrapper around a scope or an annotation");
  }
  const auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(raw));
  vectorcallfunc call = call_for(code->co_flags, owner);
  if (call == nullptr) return wrapper;
  if (run_wrapper == nullptr) run_wrapper = reinterpret_cast<PyFunctionObject*>(raw)->vectorcall;
  set_vectorcall(raw, call);
  return wrapper;
}

}  // namespace

void bind_decorated(py::module_& module) {
  interpreter = PyInterpreterState_Get();
  class_of<Scope> = reinterpret_cast<PyTypeObject*>(py::type::of<Scope>().ptr());
  class_of<Annotation> = reinterpret_cast<PyTypeObject*>(py::type::of<Annotation>().ptr());
  module.def("_shorten", &shorten, py::arg("wrapper"));
}

}  // namespace gpuprof::bindings
