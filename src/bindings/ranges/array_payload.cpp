#include "bindings/ranges/array_payload.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "bindings/interop/scalar_value.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

using nvtx::ArrayPayload;
using nvtx::Element;

constexpr std::size_t kShownElements = 64;

struct ElementInfo {
  Element element;
  std::size_t size;
  const char* name;
};

constexpr std::array<ElementInfo, 11> kElements{{{Element::kInt8, 1, "int8"},
                                                 {Element::kUint8, 1, "uint8"},
                                                 {Element::kInt16, 2, "int16"},
                                                 {Element::kUint16, 2, "uint16"},
                                                 {Element::kInt32, 4, "int32"},
                                                 {Element::kUint32, 4, "uint32"},
                                                 {Element::kInt64, 8, "int64"},
                                                 {Element::kUint64, 8, "uint64"},
                                                 {Element::kFloat16, 2, "float16"},
                                                 {Element::kFloat32, 4, "float32"},
                                                 {Element::kFloat64, 8, "float64"}}};

const ElementInfo& info_of(Element element) { return kElements[static_cast<std::size_t>(element)]; }

// The element of a format of the struct module; C's types have the sizes of this machine.
std::optional<Element> element_of(const char* format, Py_ssize_t size) {
  if (format == nullptr) return Element::kUint8;  // plain bytes
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (format[0] == '\0' || format[1] != '\0') return {};
  const auto sized = [size](Element first) -> std::optional<Element> {
    int step = -1;
    for (Py_ssize_t bytes = 1; bytes <= size && bytes <= 8; bytes *= 2) ++step;
    return static_cast<Element>(static_cast<int>(first) + 2 * step);
  };
  const auto is_one_of = [format](std::string_view codes) {
    return codes.find(*format) != std::string_view::npos;
  };
  if (is_one_of("bhilqn")) return sized(Element::kInt8);
  if (is_one_of("?cBHILQN")) return sized(Element::kUint8);
  const std::size_t real = std::string_view("efd").find(*format);
  if (real == std::string_view::npos) return {};
  return static_cast<Element>(static_cast<std::size_t>(Element::kFloat16) + real);
}

// Room for `count` elements behind their number, which the tool reads first.
std::shared_ptr<ArrayPayload> room_for(Element element, std::size_t count) {
  auto payload = std::make_shared<ArrayPayload>();
  payload->element = element;
  payload->count = count;
  payload->bytes.resize(sizeof(std::uint64_t) + count * info_of(element).size);
  const std::uint64_t number = count;
  std::memcpy(payload->bytes.data(), &number, sizeof number);
  return payload;
}

class Buffer {
 public:
  explicit Buffer(PyObject* object) {
    if (PyObject_GetBuffer(object, &view_, PyBUF_FULL_RO) == 0) return;
    py::error_already_set reason;
    py::raise_from(reason, PyExc_TypeError,
                   (std::string("payload: expected an array of numbers, got a ") +
                    Py_TYPE(object)->tp_name + " whose memory cannot be read")
                       .c_str());
    throw py::error_already_set();
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { PyBuffer_Release(&view_); }
  Py_buffer* operator->() { return &view_; }
  Py_buffer* get() { return &view_; }

 private:
  Py_buffer view_{};
};

std::shared_ptr<const ArrayPayload> from_buffer(PyObject* object) {
  Buffer buffer(object);
  const auto element = element_of(buffer->format, buffer->itemsize);
  if (!element) {
    throw py::type_error(std::string("payload: expected an array of numbers, got elements of the "
                                     "format '") +
                         buffer->format +
                         "' of the struct module; convert it first, as x.astype('float64') does");
  }
  const auto count = static_cast<std::size_t>(buffer->len / buffer->itemsize);
  auto payload = room_for(*element, count);
  if (buffer->len > 0 && PyBuffer_ToContiguous(payload->bytes.data() + sizeof(std::uint64_t),
                                               buffer.get(), buffer->len, 'C') != 0) {
    throw py::error_already_set();
  }
  return payload;
}

[[noreturn]] void refuse_item(PyObject* item) {
  throw py::type_error(std::string("payload: expected a list of int or float, got one of ") +
                       Py_TYPE(item)->tp_name);
}

// Integers of 64 bits where all are, else doubles.
std::shared_ptr<const ArrayPayload> from_items(const py::object& value) {
  const auto given = py::reinterpret_steal<py::tuple>(PySequence_Tuple(value.ptr()));
  if (!given) throw py::error_already_set();
  py::tuple items(given.size());
  bool is_integral = true;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const py::object item = as_number(given[i]);
    if (!item) refuse_item(py::object(given[i]).ptr());
    items[i] = item;
    int overflow = 0;
    if (PyLong_Check(item.ptr())) {
      static_cast<void>(PyLong_AsLongLongAndOverflow(item.ptr(), &overflow));
    }
    if (PyFloat_Check(item.ptr()) || overflow != 0) is_integral = false;
  }
  auto payload = room_for(is_integral ? Element::kInt64 : Element::kFloat64, items.size());
  unsigned char* place = payload->bytes.data() + sizeof(std::uint64_t);
  for (const py::handle item : items) {
    if (is_integral) {
      const std::int64_t number = PyLong_AsLongLong(item.ptr());
      std::memcpy(place, &number, sizeof number);
    } else {
      double number = PyFloat_AsDouble(item.ptr());
      if (PyErr_Occurred() != nullptr) {  // an int beyond doubles
        PyErr_Clear();
        number = PyObject_RichCompareBool(item.ptr(), py::int_(0).ptr(), Py_LT) == 1 ? -HUGE_VAL
                                                                                     : HUGE_VAL;
      }
      std::memcpy(place, &number, sizeof number);
    }
    place += 8;
  }
  return payload;
}

py::object object_at(const ElementInfo& info, const unsigned char* place) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, place, info.size);  // least significant byte first
  return scalar_value(scalar_format(info.name), bits);
}

}  // namespace

py::object as_number(const py::object& value) {
  PyObject* number = value.ptr();
  if (PyLong_Check(number) || PyFloat_Check(number)) return value;
  const PyNumberMethods* methods = Py_TYPE(number)->tp_as_number;
  if (methods == nullptr || (methods->nb_index == nullptr && methods->nb_float == nullptr) ||
      py::hasattr(value, "__dlpack__")) {
    return {};
  }
  PyObject* plain = methods->nb_index != nullptr ? PyNumber_Index(number) : PyNumber_Float(number);
  if (plain == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(plain);
}

std::shared_ptr<const ArrayPayload> array_payload_of(const py::object& value) {
  PyObject* object = value.ptr();
  if (PyObject_CheckBuffer(object) != 0) return from_buffer(object);
  const bool has_items =
      PyList_Check(object) || PyTuple_Check(object) || PyRange_Check(object) != 0;
  return has_items ? from_items(value) : nullptr;
}

py::object shown_array(const ArrayPayload& payload) {
  const ElementInfo& info = info_of(payload.element);
  if (payload.count > kShownElements) {
    return py::str(std::to_string(payload.count) + " x " + info.name);
  }
  py::list shown;
  for (std::size_t i = 0; i < payload.count; ++i) {
    shown.append(object_at(info, payload.bytes.data() + sizeof(std::uint64_t) + i * info.size));
  }
  return shown;
}

}  // namespace gpuprof::bindings
