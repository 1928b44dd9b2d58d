// gpuprof.Annotation as a Python class, and annotate() as a function that finds one by its name.
#include "bindings/bind.hpp"
#include "bindings/nvtx/annotation.hpp"
#include "bindings/python/call_arguments.hpp"
#include "bindings/python/callbacks.hpp"
#include "bindings/python/context_manager.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/objects.hpp"
#include "nvtx/attributes.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using namespace py::literals;

namespace {

constexpr Py_ssize_t kMaxAnnotations = 10'000;
constexpr Py_ssize_t kMaxKeptName = 4096;

PyObject* annotations_by_name = nullptr;  // a dict, kept for good

PyMethodDef annotation_enter{
    "__enter__", ContextManager<Annotation>::enter, METH_NOARGS,
    "__enter__(self: gpuprof._core.Annotation) -> gpuprof._core.Annotation\n\n"
    "Open the range on this thread and return the annotation."};

PyMethodDef annotation_exit{
    "__exit__", as_method(&ContextManager<Annotation>::exit), METH_FASTCALL,
    "__exit__(self: gpuprof._core.Annotation, type: typing.Any, value: typing.Any, traceback: "
    "typing.Any) -> None\n\n"
    "Close the range that this enter opened."};

py::object make_annotation(RangeArguments arguments) {
  return py::cast(new Annotation(std::move(arguments)), py::return_value_policy::take_ownership);
}

bool is_function(const py::object& value) {
  return PyCallable_Check(value.ptr()) != 0 ||
         PyObject_TypeCheck(value.ptr(), &PyStaticMethod_Type) != 0 ||
         PyObject_TypeCheck(value.ptr(), &PyClassMethod_Type) != 0;
}

PyObject* annotate_with(PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  RangeArguments read = read_range_arguments("annotate", arguments, count, keywords);
  const bool is_plain = count == 1 && keywords == nullptr;
  if (!read.name.is_none() && !PyUnicode_Check(read.name.ptr()) && is_function(read.name)) {
    const py::object function = read.name;
    read.name = py::handle(callback(Callback::kNameOf))(function);
    const py::object annotation = make_annotation(std::move(read));
    return ContextManager<Annotation>::call(annotation.ptr(), function.ptr());
  }
  if (!read.name.is_none()) require_name("annotate", read);
  const py::object name = read.name;
  py::object annotation = make_annotation(std::move(read));
  const bool is_kept = is_plain && PyUnicode_CheckExact(name.ptr()) &&
                       PyUnicode_GET_LENGTH(name.ptr()) <= kMaxKeptName &&
                       PyDict_GET_SIZE(annotations_by_name) < kMaxAnnotations;
  if (!is_kept) return annotation.release().ptr();
  PyObject* kept = PyDict_SetDefault(annotations_by_name, name.ptr(), annotation.ptr());
  Py_XINCREF(kept);
  return kept;
}

// The usual call, annotate("name") for a name met before, costs a look into a dictionary.
PyObject* annotate(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count,
                   PyObject* keywords) {
  if (PyObject* known = find_by_name(annotations_by_name, arguments, count, keywords))
    return Py_NewRef(known);
  if (PyErr_Occurred() != nullptr) return nullptr;
  return guarded<PyObject*>(nullptr, [&] { return annotate_with(arguments, count, keywords); });
}

PyMethodDef annotate_method{
    "annotate", as_method(&annotate), METH_FASTCALL | METH_KEYWORDS,
    R"(annotate(name=None, *, color=None, category=None, payload=None, domain=None, args=None)
--

Name what runs in a ``with`` block, or in a function, for tools and traces.

The range appears in NVTX where that is on (`gpuprof.nvtx.enable`, ``GPUPROF_NVTX=1``), in every
trace that records, and in torch's profiler while that records; otherwise it costs less than
``contextlib.nullcontext()``. It measures nothing: `timer` does. ``annotate("load")`` is one object
per name. An ``async with``, and a decorated async function, generator or async generator, is a
range that may cross others; a generator's goes from its first item to its end.

Parameters
----------
name : str, optional
    What tools show; of more than 4 KiB the beginning. A name that is empty or has a NUL in it
    warns once and shows nothing. Without a name it is a decorator, and the name is the function's
    ``__qualname__``.
color : str or int, optional
    A name (``'green'``), ``'#rrggbb'``, ``'#aarrggbb'``, or a number 0xAARRGGBB; for NVTX.
category : str, optional
    A group of ranges; in traces ``'annotation'`` without one.
payload : int, float or array, optional
    A number beside the name, or several: a list, tuple, range, bytes or an array in host memory
    (NumPy, `array.array`), copied now. Traces show up to 64 numbers.
domain : str, optional
    The NVTX domain; None is ``'gpuprof'``, ``''`` the one of ranges that name none.
args : dict, optional
    More values for traces, by names; what is not plain is written as its ``repr``.

Returns
-------
Annotation

Raises
------
TypeError, ValueError
    An argument is not what is listed above.

Examples
--------
>>> import gpuprof
>>> with gpuprof.annotate("load", color="green", payload=3):
...     data = sorted(range(1000))
)"};

py::dict annotation_options(const Annotation& annotation) {
  const RangeArguments& arguments = annotation.arguments();
  return py::dict("color"_a = arguments.color, "category"_a = arguments.category,
                  "payload"_a = arguments.payload, "domain"_a = arguments.domain,
                  "args"_a = arguments.args);
}

// At most this much of a name in a repr.
constexpr std::size_t kShownBytes = 100;

std::string describe_annotation(const Annotation& annotation) {
  if (annotation.arguments().name.is_none()) return "<gpuprof.annotate>";
  const std::string name = utf8(annotation.arguments().name.ptr());
  return "<gpuprof.annotate '" + nvtx::cut_text(name, kShownBytes) + "'>";
}

}  // namespace

void bind_nvtx_annotation(py::module_& module) {
  py::class_<Annotation> annotation(
      module, "Annotation", context_manager_setup<&ContextManager<Annotation>::vectorcall>(),
      py::is_final(), "A named range, shown each time it is entered.");
  annotation
      .def_property_readonly(
          "name", [](const Annotation& self) { return self.arguments().name; },
          "The name, or None.")
      .def_property_readonly(
          "is_active", &Annotation::is_active,
          "Whether a tool shows this annotation now: NVTX is on, a tool listens, and the "
          "range was pushed on this thread and will be popped there.")
      .def(
          "__aenter__",
          [](const py::object& self) {
            self.cast<Annotation&>().enter_async();
            return ready_awaitable(self);
          },
          "Start a range of this task.")
      .def(
          "__aexit__",
          [](Annotation& self, const py::object& /*type*/, const py::object& /*value*/,
             const py::object& /*traceback*/) {
            self.exit_async();
            return ready_awaitable(py::none());
          },
          py::arg("type"), py::arg("value"), py::arg("traceback"), "End this task's range.")
      .def("_start", &Annotation::start)
      .def_static("_end", &Annotation::end, py::arg("number"))
      .def("_register", &Annotation::register_label)
      .def_property_readonly("_options", &annotation_options)
      .def("__reduce__",
           [](const py::object& self) { return reduce_by(Callback::kRemakeAnnotation, self); })
      .def("__repr__", &describe_annotation);
  add_context_manager(annotation, &annotation_enter, &annotation_exit);

  annotations_by_name = checked(PyDict_New());
  add_function(module, annotate_method);
}

}  // namespace gpuprof::bindings
