#include "bindings/graphs/scalar_value.hpp"

#include <cmath>
#include <cstring>
#include <optional>
#include <string>

namespace gpuprof::bindings {

namespace py = pybind11;
using graphs::ScalarFormat;
using graphs::ScalarKind;
using graphs::WideInteger;

namespace {

// Up to here every integer is a double.
constexpr double kExactIntegers = 9007199254740992.0;
constexpr double kTwoTo64 = 18446744073709551616.0;

// NumPy's complex numbers have a __float__ too, which drops a part of them.
bool has_float(PyObject* value) {
  if (std::strstr(Py_TYPE(value)->tp_name, "complex") != nullptr) return false;
  const PyNumberMethods* methods = Py_TYPE(value)->tp_as_number;
  return methods != nullptr && methods->nb_float != nullptr;
}

// The value in a message; a number that cannot be written, or is very long, by its type.
std::string shown(PyObject* value) {
  constexpr Py_ssize_t kLongest = 60;
  const auto text = py::reinterpret_steal<py::object>(PyObject_Repr(value));
  Py_ssize_t size = 0;
  const char* utf8 = text ? PyUnicode_AsUTF8AndSize(text.ptr(), &size) : nullptr;
  if (utf8 != nullptr && size <= kLongest) return {utf8, static_cast<std::size_t>(size)};
  if (PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_Exception) == 0) {
    throw py::error_already_set();
  }
  PyErr_Clear();
  return std::string("this ") + Py_TYPE(value)->tp_name;
}

[[noreturn]] void refuse_type(PyObject* value, const ScalarFormat& format) {
  throw py::type_error(std::string("value: expected a number for ") + format.name + ", got " +
                       Py_TYPE(value)->tp_name);
}

[[noreturn]] void refuse_range(PyObject* value, const ScalarFormat& format) {
  const std::string text = shown(value);
  if (format.is_float()) {
    throw py::value_error("value: " + text + " is too large to be converted to " + format.name);
  }
  throw py::value_error("value: " + text + " does not fit in " + format.name + ", which holds " +
                        graphs::range_of(format));
}

[[noreturn]] void refuse_fraction(PyObject* value, const ScalarFormat& format) {
  throw py::value_error("value: " + shown(value) + " is no integer, and " + format.name +
                        " holds the integers " + graphs::range_of(format));
}

// Whether the value is an array or a tensor with dimensions, which has no single number even where
// it has a __float__. Python's error, if one is set, stays.
bool has_dimensions(PyObject* value) {
  const py::error_scope kept;
  PyObject* count = PyObject_GetAttrString(value, "ndim");
  const bool found = count != nullptr && PyLong_Check(count) != 0 && PyObject_IsTrue(count) == 1;
  Py_XDECREF(count);
  return found;
}

[[noreturn]] void throw_conversion_error(PyObject* value, const ScalarFormat& format) {
  if (PyErr_ExceptionMatches(PyExc_Exception) != 0 && has_dimensions(value)) {
    PyErr_Clear();
    throw py::type_error(std::string("value: expected a single number for ") + format.name +
                         ", got " + Py_TYPE(value)->tp_name + " with dimensions; pass its item()");
  }
  throw py::error_already_set();
}

// Through __float__, else __index__.
double to_double(PyObject* value, const ScalarFormat& format) {
  if (PyFloat_CheckExact(value) != 0) return PyFloat_AS_DOUBLE(value);
  if (!has_float(value) && PyIndex_Check(value) == 0) refuse_type(value, format);
  const double number = PyFloat_AsDouble(value);
  if (number != -1.0 || PyErr_Occurred() == nullptr) return number;
  if (PyLong_Check(value) != 0 && PyErr_ExceptionMatches(PyExc_OverflowError) != 0) {
    PyErr_Clear();
    refuse_range(value, format);
  }
  throw_conversion_error(value, format);
}

// Nothing where it has more than 64 bits.
std::optional<WideInteger> from_long(PyObject* value) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow == 0) {
    const auto bits = static_cast<std::uint64_t>(number);
    return number < 0 ? WideInteger{true, ~bits + 1} : WideInteger{false, bits};
  }
  if (overflow < 0) return std::nullopt;
  const unsigned long long magnitude = PyLong_AsUnsignedLongLong(value);
  if (PyErr_Occurred() == nullptr) return WideInteger{false, magnitude};
  PyErr_Clear();
  return std::nullopt;
}

std::optional<WideInteger> from_float(PyObject* value, const ScalarFormat& format) {
  const double number = to_double(value, format);
  if (std::isinf(number)) return std::nullopt;
  if (std::isnan(number) || std::trunc(number) != number) refuse_fraction(value, format);
  const double magnitude = std::fabs(number);
  if (magnitude >= kTwoTo64) return std::nullopt;
  if (magnitude > kExactIntegers && PyFloat_Check(value) == 0) {
    throw py::value_error("value: " + shown(value) +
                          " is known as a float only, which may have lost digits; pass an int");
  }
  return WideInteger{number < 0.0, static_cast<std::uint64_t>(magnitude)};
}

// Through __index__, else __float__: NumPy's bool has a __float__ only.
std::optional<WideInteger> to_integer(PyObject* value, const ScalarFormat& format) {
  if (PyLong_Check(value) != 0) return from_long(value);
  if (PyIndex_Check(value) != 0) {
    const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(value));
    if (index) return from_long(index.ptr());
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0 || !has_float(value)) {
      throw_conversion_error(value, format);
    }
    PyErr_Clear();
  }
  return from_float(value, format);
}

}  // namespace

std::uint64_t scalar_bits(PyObject* value, const ScalarFormat& format) {
  if (format.is_float()) return graphs::encode(format, to_double(value, format));
  const std::optional<WideInteger> number = to_integer(value, format);
  const std::optional<std::uint64_t> bits = number ? graphs::encode(format, *number) : std::nullopt;
  if (!bits) refuse_range(value, format);
  return *bits;
}

py::object scalar_value(const ScalarFormat& format, std::uint64_t bits) {
  if (format.is_float()) return py::float_(graphs::decode_float(format, bits));
  const WideInteger number = graphs::decode_integer(format, bits);
  if (format.kind == ScalarKind::kBool) return py::bool_(number.magnitude != 0);
  if (!number.negative) return py::int_(number.magnitude);
  return py::int_(static_cast<std::int64_t>(~number.magnitude + 1));
}

}  // namespace gpuprof::bindings
