#include "bindings/ranges/arguments.hpp"

#include <cmath>
#include <cstdint>
#include <tuple>
#include <utility>

#include "bindings/python/call_arguments.hpp"
#include "bindings/python/callbacks.hpp"
#include "bindings/python/objects.hpp"
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
  if (PyFloat_Check(number.ptr())) return PyFloat_AS_DOUBLE(number.ptr());
  int overflow = 0;
  const std::int64_t integer = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow == 0) return integer;
  const std::uint64_t natural = PyLong_AsUnsignedLongLong(number.ptr());
  if (PyErr_Occurred() == nullptr) return natural;
  PyErr_Clear();
  const double real = PyLong_AsDouble(number.ptr());  // as near as NVTX can show it
  if (PyErr_Occurred() == nullptr) return real;
  PyErr_Clear();
  return overflow > 0 ? HUGE_VAL : -HUGE_VAL;
}

void read_payload(RangeArguments& into) {
  py::object found = into.payload;
  if (!PyLong_Check(found.ptr()) && !PyFloat_Check(found.ptr())) {
    found = py::handle(callback(Callback::kPayload))(found);
  }
  if (!py::isinstance<py::tuple>(found)) {
    into.attributes.payload = payload_of(found);
    into.payload = into.shown_payload = std::move(found);
    return;
  }
  auto [element, bytes, shown] = found.cast<std::tuple<int, std::string, py::object>>();
  into.attributes.payload = std::make_shared<const nvtx::ArrayPayload>(
      nvtx::ArrayPayload{static_cast<nvtx::Element>(element), std::move(bytes)});
  into.shown_payload = std::move(shown);
}

py::object checked_args(const py::object& value) {
  if (!PyDict_Check(value.ptr())) wrong_type("args", "a dict or None", value);
  for (const auto& item : py::reinterpret_borrow<py::dict>(value)) {
    if (!PyUnicode_Check(item.first.ptr())) {
      wrong_type("args", "a dict whose keys are str",
                 py::reinterpret_borrow<py::object>(item.first));
    }
  }
  return owned(PyDict_Copy(value.ptr()));
}

}  // namespace

RangeArguments read_range_arguments(const char* function, PyObject* const* arguments,
                                    Py_ssize_t count, PyObject* keywords) {
  static constexpr const char* kNames[] = {"name",    "color",  "category",
                                           "payload", "domain", "args"};
  CallArguments<6> given;
  if (!given.read(kNames, 1, arguments, count, keywords)) {
    given.refuse(function, kNames, 1, count, keywords);
    throw py::error_already_set();
  }
  const auto value = [&given](std::size_t place) {
    PyObject* object = given.at[place];
    return py::reinterpret_borrow<py::object>(object != nullptr ? object : Py_None);
  };
  RangeArguments result{value(0), value(1),   value(2), value(3), value(4),
                        value(5), py::none(), {},       {}};
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
