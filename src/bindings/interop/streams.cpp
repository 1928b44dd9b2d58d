#include "bindings/interop/streams.hpp"

#include <pybind11/pybind11.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "bindings/bind.hpp"
#include "bindings/interop/array_desc.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/objects.hpp"
#include "driver/devices.hpp"
#include "driver/process.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

// A module, only if somebody imported it already. Borrowed, or null.
PyObject* imported(PyObject* name) {
  PyObject* modules = PyImport_GetModuleDict();
  PyObject* module = modules != nullptr ? PyDict_GetItemWithError(modules, name) : nullptr;
  PyErr_Clear();
  return module != Py_None ? module : nullptr;
}

// The functions of torch that a scope calls. Found once torch has initialised CUDA; kept for good.
class Torch {
 public:
  [[nodiscard]] bool ready() {
    if (raw_stream_ != nullptr) return true;
    static PyObject* name = interned("torch");
    PyObject* torch = imported(name);
    return torch != nullptr && find(torch);
  }

  // Torch's current device. -1 on failure.
  [[nodiscard]] int ordinal() const {
    PyObject* value = PyObject_CallNoArgs(get_device_);
    const long ordinal = value != nullptr ? PyLong_AsLong(value) : -1;
    Py_XDECREF(value);
    ignore_exception();
    return static_cast<int>(ordinal);
  }

  [[nodiscard]] std::uintptr_t stream(int ordinal) const {
    if (exchange_ != nullptr) {  // in a third of the time of the Python call
      void* handle = nullptr;
      if (exchange_->current_stream(kDlpackCuda, ordinal, &handle) == 0) {
        return reinterpret_cast<std::uintptr_t>(handle);
      }
      ignore_exception();
    }
    PyObject* index = PyLong_FromLong(ordinal);
    if (index == nullptr) return 0;
    PyObject* value = PyObject_CallOneArg(raw_stream_, index);
    Py_DECREF(index);
    void* handle = value != nullptr ? PyLong_AsVoidPtr(value) : nullptr;
    Py_XDECREF(value);
    ignore_exception();
    return reinterpret_cast<std::uintptr_t>(handle);
  }

 private:
  bool find(PyObject* torch) {
    // Python code, in which a thread may end at exit: no object may be owned by this frame then.
    PyObject* cuda = PyObject_GetAttrString(torch, "cuda");
    PyObject* answer =
        cuda != nullptr ? PyObject_CallMethod(cuda, "is_initialized", nullptr) : nullptr;
    const bool initialised = answer == Py_True;
    Py_XDECREF(answer);
    Py_XDECREF(cuda);
    ignore_exception();
    if (!initialised) return false;
    try {
      const py::handle module(torch);
      const py::object core = module.attr("_C");
      py::object get_device = core.attr("_cuda_getDevice");
      py::object raw_stream = core.attr("_cuda_getCurrentRawStream");
      get_device_ = get_device.release().ptr();
      raw_stream_ = raw_stream.release().ptr();
      exchange_ = exchange_of(module);
      return true;
    } catch (const std::exception&) {  // a half imported torch, or one without CUDA
      PyErr_Clear();
      return false;
    }
  }

  // Torch's table of DLPack functions, where it can tell the current stream.
  static const DlExchangeApi* exchange_of(const py::handle& torch) {
    const py::object tensor = py::getattr(torch, "Tensor", py::none());
    if (PyType_Check(tensor.ptr()) == 0) return nullptr;
    const DlExchangeApi* api = exchange_api(reinterpret_cast<PyTypeObject*>(tensor.ptr()));
    return api != nullptr && api->current_stream != nullptr ? api : nullptr;
  }

  PyObject* raw_stream_ = nullptr;
  PyObject* get_device_ = nullptr;
  const DlExchangeApi* exchange_ = nullptr;
};

Torch torch;

constexpr std::uintptr_t kPerThreadStream = 2;  // a larger handle is no default stream's

// CuPy's get_current_stream, looked up once for each module of that name. Borrowed.
PyObject* cupy_getter(PyObject* cupy) {
  static PyObject* of = nullptr;
  static PyObject* getter = nullptr;
  if (cupy != of) {
    py::object found = py::handle(cupy).attr("cuda").attr("get_current_stream");
    Py_XSETREF(getter, found.release().ptr());
    Py_XSETREF(of, Py_NewRef(cupy));
  }
  return getter;
}

// CuPy's current stream, 0 if CuPy is not imported.
std::uintptr_t cupy_stream(bool& is_there, PyObject** owner) {
  static PyObject* name = interned("cupy");
  PyObject* cupy = imported(name);
  if (cupy == nullptr) return 0;
  is_there = true;
  try {
    static PyObject* ptr = interned("ptr");
    const py::object stream = owned(PyObject_CallNoArgs(cupy_getter(cupy)));
    const py::object value = owned(PyObject_GetAttr(stream.ptr(), ptr));
    const auto handle = value.cast<std::uintptr_t>();
    if (owner != nullptr && handle > kPerThreadStream) *owner = Py_NewRef(stream.ptr());
    return handle;
  } catch (const std::exception&) {  // half imported, or without a driver
    PyErr_Clear();
    return 0;
  }
}

// Reads an int, or what converts to one without loss, such as NumPy's integers. False for a bool,
// and where the value has an __index__ that refuses, as that of an array does.
bool from_integer(PyObject* value, std::uintptr_t& handle) {
  if (PyIndex_Check(value) == 0 || PyBool_Check(value) != 0) return false;
  PyObject* integer = PyNumber_Index(value);
  if (integer == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw py::error_already_set();
    PyErr_Clear();
    return false;
  }
  const unsigned long long number = PyLong_AsUnsignedLongLong(integer);
  Py_DECREF(integer);
  if (number == static_cast<unsigned long long>(-1) && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw py::value_error(
        "stream: an int must be a CUDA stream handle between 0 and 2**64 - 1, got " +
        py::repr(value).cast<std::string>());
  }
  handle = static_cast<std::uintptr_t>(number);
  return true;
}

// The protocol of CUDA's Python libraries: __cuda_stream__ gives (version, handle).
std::uintptr_t from_protocol(const py::object& protocol) {
  const py::object pair = PyCallable_Check(protocol.ptr()) != 0 ? protocol() : protocol;
  if (!py::isinstance<py::tuple>(pair) || py::len(pair) != 2) {
    throw py::type_error("stream: __cuda_stream__ must give (version, handle), got " +
                         py::repr(pair).cast<std::string>());
  }
  const py::object value = py::tuple(pair)[1];
  std::uintptr_t handle = 0;
  if (from_integer(value.ptr(), handle)) return handle;
  throw py::type_error("stream: __cuda_stream__ must give a handle that is an int, got " +
                       py::repr(value).cast<std::string>());
}

}  // namespace

CurrentStream current_stream(PyObject** owner) {
  CurrentStream current;
  if (torch.ready()) {
    current.of_framework = true;
    const int on_thread = driver::current_ordinal();
    current.ordinal = std::max(on_thread >= 0 ? on_thread : torch.ordinal(), 0);
    current.handle = torch.stream(current.ordinal);
  }
  if (current.handle == 0) current.handle = cupy_stream(current.of_framework, owner);
  return current;
}

bool framework_is_live() {
  if (driver::is_blocked() || !torch.ready()) return false;
  const int ordinal = torch.ordinal();
  return ordinal >= 0 && driver::has_live_context(ordinal);
}

std::uintptr_t stream_handle(PyObject* stream) {
  // A launch or a timer takes a handle each time: this reads one in a tenth of the instructions.
  if (PyLong_CheckExact(stream) != 0) {
    int overflow = 0;
    const long number = PyLong_AsLongAndOverflow(stream, &overflow);
    if (overflow == 0 && number >= 0) return static_cast<std::uintptr_t>(number);
  }
  std::uintptr_t handle = 0;
  if (PyLong_Check(stream) != 0 && from_integer(stream, handle)) return handle;
  const py::handle object(stream);
  if (PyBool_Check(stream) == 0) {
    if (py::hasattr(object, "__cuda_stream__"))
      return from_protocol(object.attr("__cuda_stream__"));
    for (const char* name : {"cuda_stream", "ptr"}) {
      const py::object value = py::getattr(object, name, py::none());
      if (from_integer(value.ptr(), handle)) return handle;
    }
    if (from_integer(stream, handle)) return handle;
  }
  throw py::type_error(
      "stream: expected None, an int handle, or an object with __cuda_stream__, .cuda_stream or "
      ".ptr, got " +
      std::string(Py_TYPE(stream)->tp_name));
}

void bind_streams(py::module_& module) {
  module.def(
      "stream_handle",
      [](const py::object& stream) {
        return stream.is_none() ? current_stream().handle : stream_handle(stream.ptr());
      },
      py::arg("stream") = py::none(),
      "The CUDA handle, as an int, of what a `stream=` argument means.");
  module.def(
      "_current_stream",
      [] {
        const CurrentStream now = current_stream();
        return std::make_tuple(now.handle, now.ordinal, now.of_framework);
      },
      "(handle, device, whether a framework is there) of the stream that None stands for.");
}

}  // namespace gpuprof::bindings
