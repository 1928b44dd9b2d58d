#include "bindings/ranges/arguments.hpp"
#include "bindings/python/objects.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <utility>

#include "bindings/ranges/array_payload.hpp"
#include "nvtx/attributes.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

std::string type_name_of(const py::object& value) { return Py_TYPE(value.ptr())->tp_name; }

[[noreturn]] void wrong_type(const char* argument, const char* expected, const py::object& value) {
  throw py::type_error(std::string(argument) + ": expected " + expected + ", got " +
                       type_name_of(value));
}

// A name of a category or domain, cut as labels are. NVTX takes C strings, so that a NUL has to go.
std::string checked_text(const char* argument, const py::object& value) {
  if (!PyUnicode_Check(value.ptr())) wrong_type(argument, "a str or None", value);
  const std::string text = utf8(value.ptr());
  if (text.empty()) {
    throw py::value_error(std::string(argument) + ": expected a non-empty str or None, got ''");
  }
  return nvtx::shown_label(without_nul(text));
}

std::uint32_t checked_color(const py::object& value) {
  if (PyUnicode_Check(value.ptr())) {
    const std::string text = utf8(value.ptr());
    if (const auto argb = nvtx::color_of(text)) return *argb;
    throw py::value_error("color: expected '#rrggbb', '#aarrggbb', a number 0xAARRGGBB or one of " +
                          nvtx::color_names() + "; got '" + nvtx::cut_text(text, 100) + "'");
  }
  if (!PyLong_Check(value.ptr())) wrong_type("color", "a str, an int or None", value);
  const std::uint64_t number = PyLong_AsUnsignedLongLong(value.ptr());
  const bool overflowed = PyErr_Occurred() != nullptr;
  PyErr_Clear();
  if (overflowed || number > 0xFFFFFFFFU) {
    throw py::value_error("color: expected a number from 0 to 0xFFFFFFFF (ARGB), got " +
                          (overflowed ? "one below 0 or above 64 bits" : std::to_string(number)));
  }
  return static_cast<std::uint32_t>(number);
}

nvtx::Payload payload_of(const py::object& number) {
  nvtx::Payload payload;
  if (PyFloat_Check(number.ptr())) {
    payload.kind = nvtx::Payload::Kind::kReal;
    payload.real_value = PyFloat_AS_DOUBLE(number.ptr());
    return payload;
  }
  int overflow = 0;
  payload.signed_value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow == 0) {
    payload.kind = nvtx::Payload::Kind::kSigned;
    return payload;
  }
  payload.unsigned_value = PyLong_AsUnsignedLongLong(number.ptr());
  if (PyErr_Occurred() == nullptr) {
    payload.kind = nvtx::Payload::Kind::kUnsigned;
    return payload;
  }
  PyErr_Clear();
  payload.kind = nvtx::Payload::Kind::kReal;  // no integer of 64 bits: as near as NVTX can show it
  payload.real_value = PyLong_AsDouble(number.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    payload.real_value = overflow > 0 ? HUGE_VAL : -HUGE_VAL;
  }
  return payload;
}

void read_payload(RangeArguments& into) {
  if (const py::object number = as_number(into.payload)) {
    into.payload = number;
    into.attributes.payload = payload_of(number);
    return;
  }
  auto array = array_payload_of(into.payload);
  if (!array) {
    wrong_type("payload",
               "an int, a float, an array of numbers in host memory, a list of them or None (a GPU "
               "array is copied first: x.cpu().numpy(); other values go into args)",
               into.payload);
  }
  into.attributes.payload.kind = nvtx::Payload::Kind::kArray;
  into.attributes.payload.array = std::move(array);
}

py::object checked_args(const py::object& value) {
  if (!PyDict_Check(value.ptr())) wrong_type("args", "a dict or None", value);
  for (const auto& item : py::reinterpret_borrow<py::dict>(value)) {
    if (!PyUnicode_Check(item.first.ptr())) {
      wrong_type("args", "a dict whose keys are str",
                 py::reinterpret_borrow<py::object>(item.first));
    }
  }
  PyObject* copy = PyDict_Copy(value.ptr());
  if (copy == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(copy);
}

struct Slot {
  const char* keyword;
  py::object RangeArguments::* place;
};

constexpr std::array<Slot, 6> kSlots{{{"name", &RangeArguments::name},
                                      {"color", &RangeArguments::color},
                                      {"category", &RangeArguments::category},
                                      {"payload", &RangeArguments::payload},
                                      {"domain", &RangeArguments::domain},
                                      {"args", &RangeArguments::args}}};

void place_keyword(const char* function, RangeArguments& into, PyObject* keyword, PyObject* value) {
  for (const Slot& slot : kSlots) {
    if (PyUnicode_CompareWithASCIIString(keyword, slot.keyword) != 0) continue;
    py::object& place = into.*slot.place;
    if (place) {
      throw py::type_error(std::string(function) + "() got two values for '" + slot.keyword + "'");
    }
    place = py::reinterpret_borrow<py::object>(value);
    return;
  }
  throw py::type_error(std::string(function) + "() has no argument '" + utf8(keyword) +
                       "'; it takes name, color, category, payload, domain and args");
}

}  // namespace

RangeArguments read_range_arguments(const char* function, PyObject* const* arguments,
                                    Py_ssize_t count, PyObject* keywords) {
  if (count > 1) {
    throw py::type_error(std::string(function) +
                         "() takes the name by position and the rest by "
                         "keyword; got " +
                         std::to_string(count) + " positional arguments");
  }
  RangeArguments result;
  if (count == 1) result.name = py::reinterpret_borrow<py::object>(arguments[0]);
  const Py_ssize_t named = keywords != nullptr ? PyTuple_GET_SIZE(keywords) : 0;
  for (Py_ssize_t i = 0; i < named; ++i) {
    place_keyword(function, result, PyTuple_GET_ITEM(keywords, i), arguments[count + i]);
  }
  for (const Slot& slot : kSlots) {
    if (!(result.*slot.place)) result.*slot.place = py::none();
  }
  if (!result.color.is_none()) result.attributes.argb = checked_color(result.color);
  if (!result.category.is_none())
    result.attributes.category = checked_text("category", result.category);
  if (!result.payload.is_none()) read_payload(result);
  const bool is_unnamed =
      PyUnicode_Check(result.domain.ptr()) && PyUnicode_GET_LENGTH(result.domain.ptr()) == 0;
  if (!result.domain.is_none() && !is_unnamed)
    result.domain_name = checked_text("domain", result.domain);
  if (!result.args.is_none()) result.args = checked_args(result.args);
  return result;
}

void require_name(const char* function, const RangeArguments& arguments) {
  if (PyUnicode_Check(arguments.name.ptr())) return;
  throw py::type_error("name: expected a str, got " + type_name_of(arguments.name) +
                       "; write gpuprof." + function + "('name')");
}

}  // namespace gpuprof::bindings
