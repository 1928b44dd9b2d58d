// gpuprof.DeviceScalar without its constructor's arguments, which Python checks.
#include "bindings/graphs/scalar.hpp"

#include <pybind11/typing.h>

#include <cstdio>
#include <optional>
#include <string>

#include "bindings/bind.hpp"
#include "bindings/interop/scalar_value.hpp"
#include "bindings/interop/streams.hpp"
#include "bindings/python/call_arguments.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"
#include "bindings/python/objects.hpp"
#include "bindings/python/queueing.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using graphs::DeviceScalar;

namespace {

// DLPack and the array interface number the legacy default stream 1.
std::uintptr_t numbered(std::uintptr_t stream) noexcept { return stream == 0 ? 1 : stream; }

// A DeviceScalar with what only Python has: the streams to keep alive.
class PyScalar {
 public:
  // `first` is what the stream of the first write lives as long as; its reference is taken.
  PyScalar(const ScalarFormat& format, std::shared_ptr<DeviceScalar> scalar, py::handle stream,
           std::uintptr_t handle, PyObject* first)
      : format_(format),
        own_stream_(py::reinterpret_borrow<py::object>(stream)),
        own_handle_(handle),
        last_stream_(py::reinterpret_steal<py::object>(first)),
        scalar_(std::move(scalar)) {}

  void update(PyObject* value, PyObject* stream, bool record) {
    const std::uint64_t bits = scalar_bits(value, format_);
    // A copy: another thread may close this while the lock is let go.
    const std::shared_ptr<DeviceScalar> scalar = open();
    PyObject* owner = stream;
    const std::uintptr_t on = stream_of(stream, owner);
    bool recorded = false;
    const auto write = [&] { recorded = scalar->update(bits, on, record); };
    or_undo([&] { queue_without_gil({on, &scalar->clock()}, write); }, [&] { Py_DECREF(owner); });
    // Where another thread's update came later, it keeps that one's stream.
    if (recorded || owner == last_stream_.ptr() || on != scalar->last_stream()) {
      Py_DECREF(owner);
      return;
    }
    py::object before = std::move(last_stream_);
    last_stream_ = py::reinterpret_steal<py::object>(owner);
  }

  // A daemon thread may end in here at exit, by unwinding without the interpreter lock: the frames
  // own no Python object.
  [[nodiscard]] py::object get(py::handle stream) const {
    const std::shared_ptr<DeviceScalar> scalar = open();
    const std::uintptr_t on =
        stream.is_none() ? scalar->last_stream() : stream_handle(stream.ptr());
    std::optional<DeviceScalar::Reading> read;
    PyObject* owner = Py_XNewRef(last_stream_.ptr());  // another thread may update or close this
    const auto begin = [&] { read.emplace(scalar->reading(on)); };
    with_cleanup([&] { queue_without_gil({on, &scalar->clock()}, begin); },
                 [&] { Py_XDECREF(owner); });
    // NOLINTNEXTLINE(bugprone-unchecked-optional-access): what throws does not get here
    DeviceScalar::Reading& reading = *read;
    wait_without_gil([&](timing::HostNanoseconds until) { return reading.poll(until); });
    return scalar_value(format_, without_gil([&] { return reading.fetch(); }));
  }

  void close() {
    const std::shared_ptr<DeviceScalar> closed = std::move(scalar_);
    own_stream_ = py::none();
    last_stream_ = py::none();
  }

  [[nodiscard]] const std::shared_ptr<DeviceScalar>& open_or_null() const noexcept {
    return scalar_;
  }
  [[nodiscard]] std::shared_ptr<DeviceScalar> open() const {
    if (!scalar_) throw_invalid_state("this DeviceScalar is closed; make a new one");
    return scalar_;
  }

  [[nodiscard]] const ScalarFormat& format() const noexcept { return format_; }

  [[nodiscard]] std::string describe() const {
    const std::string text = std::string("<gpuprof.DeviceScalar ") + format_.name;
    if (!scalar_) return text + ", closed>";
    char place[64];
    std::snprintf(place, sizeof place, " at 0x%llx, device %d>",
                  static_cast<unsigned long long>(scalar_->address()), scalar_->ordinal());
    return text + place;
  }

 private:
  // None is the scalar's own stream, and if it has none the framework's current one. `owner`
  // becomes a new reference to what the stream lives as long as.
  [[nodiscard]] std::uintptr_t stream_of(PyObject* stream, PyObject*& owner) const {
    std::uintptr_t handle = own_handle_;
    owner = nullptr;
    if (stream != Py_None) {
      handle = stream_handle(stream);
    } else if (own_stream_.is_none()) {
      handle = current_stream(&owner).handle;
    }
    if (owner == nullptr) owner = Py_NewRef(stream);
    return handle;
  }

  const ScalarFormat& format_;
  py::object own_stream_;
  std::uintptr_t own_handle_;
  py::object last_stream_;
  std::shared_ptr<DeviceScalar> scalar_;
};

std::unique_ptr<PyScalar> make(py::handle value, const std::string& dtype, py::handle stream) {
  const ScalarFormat& format = scalar_format(dtype);
  const std::uint64_t bits = scalar_bits(value.ptr(), format);
  PyObject* owner = nullptr;
  const CurrentStream on = stream.is_none() ? current_stream(&owner)
                                            : CurrentStream{stream_handle(stream.ptr()), 0, false};
  if (owner == nullptr) owner = stream.inc_ref().ptr();
  // Memory may have to be freed first, which waits.
  const auto make_scalar = [&] {
    return std::make_shared<DeviceScalar>(format.bytes, bits, on.handle, on.ordinal);
  };
  auto scalar = or_undo([&] { return without_gil(make_scalar); }, [&] { Py_DECREF(owner); });
  return std::make_unique<PyScalar>(format, std::move(scalar), stream, on.handle, owner);
}

PyObject* update(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  static constexpr const char* kNames[] = {"value", "stream", "record"};
  CallArguments<3> given;
  if (!given.read(kNames, 2, arguments, count, keywords)) {
    return given.refuse("update", kNames, 2, count, keywords);
  }
  if (given.at[0] == nullptr) {
    return PyErr_Format(PyExc_TypeError, "update() needs the value to write");
  }
  PyObject* stream = given.at[1] != nullptr ? given.at[1] : Py_None;
  PyObject* record = given.at[2] != nullptr ? given.at[2] : Py_False;
  if (PyBool_Check(record) == 0) {
    return PyErr_Format(PyExc_TypeError, "record: expected True or False, got %s",
                        Py_TYPE(record)->tp_name);
  }
  unchecked<PyScalar>(self).update(given.at[0], stream, record == Py_True);
  return Py_NewRef(Py_None);
}

PyMethodDef update_method{
    "update", as_method(&Guarded<&update>::call), METH_FASTCALL | METH_KEYWORDS,
    R"(update(self: gpuprof._core._DeviceScalar, value: typing.Any, stream: typing.Any = None, *, record: bool = False) -> None

Write a value in a stream's order, without waiting.

Work that is queued on the stream from now on sees the new value. The value travels in the call,
so nothing has to be kept for it.

Parameters
----------
value : number
    What has ``__index__`` or ``__float__``. An integer dtype takes integers in its range; a
    floating-point one rounds to nearest, ties to even.
stream : int or object, optional
    None is the stream that the scalar was made with, and if that was None the framework's
    current one.
record : bool
    On a stream that is being captured: make the write a node of the graph, which writes this
    value at each replay.

Raises
------
InvalidStateError
    The stream is being captured and `record` is False, or belongs to another context; or the
    scalar is closed.
CudaError
    The driver refused the write.
TypeError, ValueError
    `value` is no number, or does not fit in the dtype.
)"};

// What a consumer's `stream` means; false where it wants no order.
bool consumer_stream(py::handle stream, std::uintptr_t& handle) {
  handle = 1;
  if (stream.is_none()) return true;
  if (PyLong_Check(stream.ptr()) != 0) {
    const long long number = PyLong_AsLongLong(stream.ptr());
    if (number == -1 && PyErr_Occurred() == nullptr) return false;
    PyErr_Clear();
  }
  handle = numbered(stream_handle(stream.ptr()));
  return true;
}

// The structure that a consumer of DLPack sees, with what it must keep alive. The consumer may drop
// it on any thread, without the interpreter lock.
template <typename Managed>
struct Exported {
  Managed managed{};
  std::shared_ptr<void> memory;
};

// A consumer renames the capsule; one with its first name was never taken.
template <typename Managed>
void drop_untaken(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, Managed::kName) == 0) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, Managed::kName));
  managed->deleter(managed);
}

template <typename Managed>
py::object export_as(const DlTensor& tensor, std::shared_ptr<void> memory) {
  auto exported = std::make_unique<Exported<Managed>>();
  exported->memory = std::move(memory);
  Managed& managed = exported->managed;
  managed.owner = exported.get();
  managed.deleter = [](Managed* done) { delete static_cast<Exported<Managed>*>(done->owner); };
  managed.tensor = tensor;
  py::object capsule = owned(PyCapsule_New(&managed, Managed::kName, &drop_untaken<Managed>));
  exported.release();  // the capsule's now
  return capsule;
}

// A plain object to callers: the name of a capsule's type depends on the version of Python.
py::object dlpack(const PyScalar& self, py::handle stream, py::handle max_version,
                  py::handle dl_device, py::handle copy) {
  const std::shared_ptr<DeviceScalar> scalar = self.open();
  if (!dl_device.is_none() && !dl_device.equal(py::make_tuple(kDlpackCuda, scalar->ordinal()))) {
    throw py::buffer_error("dl_device: a DeviceScalar on CUDA device " +
                           std::to_string(scalar->ordinal()) +
                           " is not copied to another device; use get() for its value");
  }
  if (copy.ptr() == Py_True) {
    throw py::buffer_error("copy: a DeviceScalar is handed over without a copy only");
  }
  const bool versioned = !max_version.is_none() && py::cast<int>(max_version[py::int_(0)]) >= 1;
  std::uintptr_t consumer = 0;
  if (consumer_stream(stream, consumer)) {
    const auto order = [&] {
      scalar->order_before(
          consumer,
          "DeviceScalar.__dlpack__() cannot order a stream that is being captured with another "
          "one; make the array before the capture begins");
    };
    // A record and a wait on two streams, each of which may wait for room.
    scalar->surely_updated_on(consumer) ? order() : without_gil(order);
  }
  DlTensor tensor{};
  tensor.data = reinterpret_cast<void*>(scalar->address());
  tensor.device = {kDlpackCuda, scalar->ordinal()};
  tensor.dtype = {static_cast<std::uint8_t>(self.format().kind),
                  static_cast<std::uint8_t>(8 * self.format().bytes), 1};
  return versioned ? export_as<DlManagedVersioned>(tensor, scalar->memory())
                   : export_as<DlManaged>(tensor, scalar->memory());
}

py::typing::Dict<py::str, py::object> array_interface(const PyScalar& self) {
  const std::shared_ptr<DeviceScalar> scalar = self.open();
  const ScalarFormat& format = self.format();
  if (format.code == 0) {
    throw py::attribute_error(
        "__cuda_array_interface__ has no code for bfloat16; use DLPack, as in "
        "torch.from_dlpack(scalar)");
  }
  py::typing::Dict<py::str, py::object> interface;
  interface["shape"] = py::tuple();
  interface["typestr"] = (format.bytes == 1 ? "|" : "<") + std::string(1, format.code) +
                         std::to_string(static_cast<int>(format.bytes));
  interface["data"] = py::make_tuple(scalar->address(), false);
  interface["strides"] = py::none();
  interface["stream"] = numbered(scalar->last_stream());
  interface["version"] = 3;
  return interface;
}

}  // namespace

std::shared_ptr<DeviceScalar> device_scalar(py::handle object) {
  if (!py::isinstance<PyScalar>(object)) return nullptr;
  return object.cast<const PyScalar&>().open_or_null();
}

void bind_graphs_scalar(py::module_& module) {
  py::class_<PyScalar> scalar(module, "_DeviceScalar", "One number in device memory.");
  scalar.def(py::init(&make), py::arg("value"), py::arg("dtype"), py::arg("stream"))
      .def("get", &PyScalar::get, py::arg("stream") = py::none(),
           R"(Return the value, after what is queued on a stream now.

Waits for the GPU.

Parameters
----------
stream : int or object, optional
    None is the stream of the last `update`. Pass the stream of a replay to see what it wrote.

Returns
-------
bool, int or float

Raises
------
InvalidStateError
    The stream is being captured or belongs to another context, or the scalar is closed.
CudaError
    The driver refused the read, or work on the stream failed.
)")
      .def("close", &PyScalar::close,
           "Let go of the memory, once arrays made from it have too. Idempotent; never waits.")
      .def_property_readonly(
          "ptr", [](const PyScalar& self) { return self.open()->address(); },
          "The device address, which never changes.")
      .def_property_readonly(
          "dtype", [](const PyScalar& self) { return self.format().name; },
          "NumPy's name of the type, or 'bfloat16'.")
      .def_property_readonly(
          "nbytes", [](const PyScalar& self) { return static_cast<int>(self.format().bytes); },
          "How many bytes the number has.")
      .def_property_readonly(
          "device", [](const PyScalar& self) { return self.open()->ordinal(); },
          "The index of the device that it lies on.")
      .def_property_readonly("__cuda_array_interface__", &array_interface,
                             "The number as an array of no dimensions, for CuPy, Numba and torch.")
      .def("__dlpack__", &dlpack, py::kw_only(), py::arg("stream") = py::none(),
           py::arg("max_version") = py::none(), py::arg("dl_device") = py::none(),
           py::arg("copy") = py::none(),
           "The number as a DLPack capsule; `stream` is made to wait for the last update.")
      .def(
          "__dlpack_device__",
          [](const PyScalar& self) { return py::make_tuple(kDlpackCuda, self.open()->ordinal()); },
          "(2, device): CUDA memory, in DLPack's numbers.")
      .def("__repr__", &PyScalar::describe);
  add_method(scalar, update_method);
}

}  // namespace gpuprof::bindings
