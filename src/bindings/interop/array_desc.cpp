#include "bindings/interop/array_desc.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "bindings/bind.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/objects.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

struct KnownType {
  PyTypeObject* type;  // kept: its address must not become another type's
  const DlExchangeApi* api;
};

// A process has few types of arrays; past these the attribute is looked up each time.
constexpr std::size_t kKnownTypes = 16;
std::array<KnownType, kKnownTypes> known_types;
std::size_t known_count = 0;

const DlExchangeApi* find_api(PyTypeObject* type) {
  static PyObject* name = interned("__dlpack_c_exchange_api__");
  PyObject* capsule = PyObject_GetAttr(reinterpret_cast<PyObject*>(type), name);
  if (capsule == nullptr) {
    ignore_exception();
    return nullptr;
  }
  const auto* api =
      static_cast<const DlExchangeApi*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  Py_DECREF(capsule);  // the table lives as long as the process, by the protocol
  ignore_exception();
  while (api != nullptr && api->version.major > 1) api = api->previous;
  return api != nullptr && api->version.major == 1 && api->look != nullptr ? api : nullptr;
}

bool read_by_api(const DlExchangeApi& api, PyObject* object, ArrayDesc& desc) {
  DlTensor tensor{};
  if (api.look(object, &tensor) != 0) {
    ignore_exception();
    return false;
  }
  if (tensor.ndim > kMaxRank) return false;
  desc.address = tensor.data != nullptr
                     ? reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.byte_offset
                     : 0;
  desc.device = tensor.device;
  desc.dtype = tensor.dtype;
  desc.rank = tensor.ndim;
  desc.shape = tensor.shape;
  desc.strides = tensor.strides;
  if (tensor.strides == nullptr) {
    std::int64_t stride = 1;
    for (int i = tensor.ndim; i-- > 0;) {
      desc.storage[static_cast<std::size_t>(i)] = stride;
      stride *= tensor.shape[i];
    }
    desc.strides = desc.storage.data();
  }
  return true;
}

// "<f4" and the like. False for what is no plain number: big-endian, structured, text, dates.
bool read_typestr(std::string_view text, DlDataType& dtype) {
  static constexpr std::pair<char, DlCode> kCodes[] = {
      {'i', DlCode::kSigned},  {'u', DlCode::kUnsigned}, {'f', DlCode::kFloat},
      {'c', DlCode::kComplex}, {'b', DlCode::kBool},     {'V', DlCode::kOpaque}};
  if (text.size() < 3 || text[0] == '>') return false;
  const auto* found = std::find_if(std::begin(kCodes), std::end(kCodes),
                                   [&](const auto& code) { return code.first == text[1]; });
  unsigned bytes = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + 2, end, bytes);
  if (found == std::end(kCodes) || read.ec != std::errc{} || read.ptr != end) return false;
  if (bytes < 1 || bytes > 16) return false;
  dtype = {static_cast<std::uint8_t>(found->second), static_cast<std::uint8_t>(8 * bytes), 1};
  return true;
}

// CuPy's arrays know their device; others are taken to be on the first.
int device_of(py::handle object) {
  static PyObject* name = interned("device");
  PyObject* device = PyObject_GetAttr(object.ptr(), name);
  PyObject* number =
      device != nullptr && PyNumber_Check(device) != 0 ? PyNumber_Long(device) : nullptr;
  const long ordinal = number != nullptr ? PyLong_AsLong(number) : 0;
  Py_XDECREF(number);
  Py_XDECREF(device);
  ignore_exception();
  return ordinal > 0 ? static_cast<int>(ordinal) : 0;
}

bool read_interface(PyObject* object, ArrayDesc& desc) {
  static PyObject* name = interned("__cuda_array_interface__");
  // Before anything is owned here: it may run Python code, in which a thread may end.
  const DlDevice device = {kDlpackCuda, device_of(object)};
  PyObject* found = PyObject_GetAttr(object, name);
  if (found == nullptr) {
    ignore_exception();
    return false;
  }
  const auto interface = py::reinterpret_steal<py::object>(found);
  if (!py::isinstance<py::dict>(interface)) return false;
  const auto entries = py::reinterpret_borrow<py::dict>(interface);
  if (entries.contains("mask") && !entries["mask"].is_none()) return false;
  const py::tuple shape(entries["shape"]);
  if (shape.size() > kMaxRank) return false;
  if (!read_typestr(entries["typestr"].cast<std::string>(), desc.dtype)) return false;
  desc.address = py::tuple(entries["data"])[0].cast<std::uintptr_t>();
  desc.device = device;
  desc.rank = static_cast<int>(shape.size());
  std::int64_t* sizes = desc.storage.data();
  std::int64_t* strides = sizes + kMaxRank;
  const bool dense = !entries.contains("strides") || entries["strides"].is_none();
  const std::int64_t item = desc.dtype.bits / 8;
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    sizes[i] = shape[i].cast<std::int64_t>();
    const std::int64_t bytes =
        dense ? stride * item : py::tuple(entries["strides"])[i].cast<std::int64_t>();
    if (bytes % item != 0) return false;
    strides[i] = bytes / item;
    stride *= sizes[i];
  }
  desc.shape = sizes;
  desc.strides = strides;
  return true;
}

PyStructSequence_Field array_desc_fields[] = {
    {"address", "Of the first element; 0 if there is none."},
    {"device_type", "The kind of memory, by DLPack's number."},
    {"device", "The index of the device."},
    {"dtype", "(code, bits, lanes)."},
    {"shape", "Elements in each dimension."},
    {"strides", "Elements from one to the next in each dimension."},
    {nullptr, nullptr}};

PyStructSequence_Desc array_desc_struct{
    "gpuprof._core.ArrayDesc", "Where an array is, and how it is laid out.", array_desc_fields, 6};

PyTypeObject* array_desc_type = nullptr;

py::tuple numbers(const std::int64_t* values, int count) {
  py::tuple result(count);
  for (int i = 0; i < count; ++i) result[static_cast<std::size_t>(i)] = values[i];
  return result;
}

py::object describe_array(const py::object& object) {
  ArrayDesc desc;
  // A type has the protocols, too, as attributes that are no array's.
  if (PyType_Check(object.ptr()) || !read_array(object.ptr(), desc)) return py::none();
  const py::handle type(reinterpret_cast<PyObject*>(array_desc_type));
  return type(py::make_tuple(desc.address, desc.device.type, desc.device.id,
                             py::make_tuple(desc.dtype.code, desc.dtype.bits, desc.dtype.lanes),
                             numbers(desc.shape, desc.rank), numbers(desc.strides, desc.rank)));
}

}  // namespace

const DlExchangeApi* exchange_api(PyTypeObject* type) {
  for (std::size_t i = 0; i < known_count; ++i) {
    if (known_types[i].type == type) return known_types[i].api;
  }
  const DlExchangeApi* api = find_api(type);
  if (known_count < kKnownTypes && api != nullptr) {
    Py_INCREF(type);
    known_types[known_count++] = {type, api};
  }
  return api;
}

bool read_array(PyObject* object, ArrayDesc& desc) {
  const DlExchangeApi* api = exchange_api(Py_TYPE(object));
  if (api != nullptr) return read_by_api(*api, object, desc);
  try {
    return read_interface(object, desc);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
  } catch (const py::cast_error&) {
    ignore_exception();
  }
  return false;
}

ArrayFacts array_facts(py::handle described) {
  using Dtype = std::tuple<std::uint8_t, std::uint8_t, std::uint16_t>;
  using Sizes = std::vector<std::int64_t>;
  auto [address, type, device, dtype, shape, strides] =
      described.cast<std::tuple<std::uintptr_t, std::int32_t, std::int32_t, Dtype, Sizes, Sizes>>();
  if (shape.size() != strides.size()) throw py::value_error("not the facts of an array");
  const auto [code, bits, lanes] = dtype;
  return {address, {type, device}, {code, bits, lanes}, std::move(shape), std::move(strides)};
}

void bind_array_desc(py::module_& module) {
  array_desc_type = checked(PyStructSequence_NewType(&array_desc_struct));
  module.add_object("ArrayDesc", reinterpret_cast<PyObject*>(array_desc_type));
  module.def("_array_facts", &describe_array, py::arg("object"),
             "What an array is, in DLPack's terms; None for what is none.");
}

}  // namespace gpuprof::bindings
