#include "bindings/interop/scalar_value.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <optional>

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

constexpr std::array<ScalarFormat, 13> kFormats{{
    {"bool", DlCode::kBool, 'b', 1},
    {"int8", DlCode::kSigned, 'i', 1},
    {"int16", DlCode::kSigned, 'i', 2},
    {"int32", DlCode::kSigned, 'i', 4},
    {"int64", DlCode::kSigned, 'i', 8},
    {"uint8", DlCode::kUnsigned, 'u', 1},
    {"uint16", DlCode::kUnsigned, 'u', 2},
    {"uint32", DlCode::kUnsigned, 'u', 4},
    {"uint64", DlCode::kUnsigned, 'u', 8},
    {"float16", DlCode::kFloat, 'f', 2},
    {"bfloat16", DlCode::kBfloat, 0, 2},
    {"float32", DlCode::kFloat, 'f', 4},
    {"float64", DlCode::kFloat, 'f', 8},
}};

// Up to here every integer is a double.
constexpr double kExactIntegers = 9007199254740992.0;
constexpr double kTwoTo64 = 18446744073709551616.0;

// An integer of up to 64 bits and a sign.
struct WideInteger {
  bool negative = false;
  std::uint64_t magnitude = 0;
};

std::uint64_t mask_of(const ScalarFormat& format) noexcept {
  return ~std::uint64_t{0} >> (64 - 8 * format.bytes);
}

std::uint64_t greatest(const ScalarFormat& format) noexcept {
  if (format.kind == DlCode::kBool) return 1;
  return format.kind == DlCode::kSigned ? mask_of(format) >> 1U : mask_of(format);
}

// The magnitude of the smallest integer.
std::uint64_t least(const ScalarFormat& format) noexcept {
  return format.kind == DlCode::kSigned ? greatest(format) + 1 : 0;
}

// The integers that a format holds: "0 to 255".
std::string range_of(const ScalarFormat& format) {
  const std::uint64_t lowest = least(format);
  return (lowest == 0 ? "" : "-") + std::to_string(lowest) + " to " +
         std::to_string(greatest(format));
}

template <typename To, typename From>
To reinterpreted(const From& value) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}

#if PY_VERSION_HEX < 0x030B0000
const auto kPackHalf = [](double value, char* out, int little) {
  return _PyFloat_Pack2(value, reinterpret_cast<unsigned char*>(out), little);
};
const auto kUnpackHalf = [](const char* from, int little) {
  return _PyFloat_Unpack2(reinterpret_cast<const unsigned char*>(from), little);
};
#else
constexpr auto kPackHalf = &PyFloat_Pack2;
constexpr auto kUnpackHalf = &PyFloat_Unpack2;
#endif

std::uint64_t half_bits(double value) {
  char packed[2];
  if (kPackHalf(value, packed, 1) != 0) {  // too large
    PyErr_Clear();
    return half_bits(std::copysign(HUGE_VAL, value));
  }
  return reinterpreted<std::uint16_t>(packed);
}

// The upper half of a float. That is rounded to odd, so that rounding twice is as good as once.
std::uint64_t bfloat_bits(double value) noexcept {
  auto nearest = static_cast<float>(value);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) {
    nearest = std::nextafter(nearest, 0.0F);
  }
  auto bits = reinterpreted<std::uint32_t>(nearest);
  if (std::isnan(value)) return bits >> 16U | 0x40U;
  if (static_cast<double>(nearest) != value) bits |= 1U;
  return (bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U;
}

std::uint64_t float_bits(double value, const ScalarFormat& format) {
  if (format.kind == DlCode::kBfloat) return bfloat_bits(value);
  if (format.bytes == 8) return reinterpreted<std::uint64_t>(value);
  if (format.bytes == 4) return reinterpreted<std::uint32_t>(static_cast<float>(value));
  return half_bits(value);
}

double float_value(std::uint64_t bits, const ScalarFormat& format) {
  if (format.kind == DlCode::kBfloat) bits <<= 16U;
  if (format.bytes == 8) return reinterpreted<double>(bits);
  if (format.bytes == 4 || format.kind == DlCode::kBfloat) {
    return static_cast<double>(reinterpreted<float>(static_cast<std::uint32_t>(bits)));
  }
  const auto half = static_cast<std::uint16_t>(bits);
  return kUnpackHalf(reinterpret_cast<const char*>(&half), 1);
}

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
                        range_of(format));
}

[[noreturn]] void refuse_fraction(PyObject* value, const ScalarFormat& format) {
  throw py::value_error("value: " + shown(value) + " is no integer, and " + format.name +
                        " holds the integers " + range_of(format));
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

const ScalarFormat& scalar_format(std::string_view name) {
  for (const ScalarFormat& format : kFormats) {
    if (name == format.name) return format;
  }
  std::string names;
  for (const ScalarFormat& format : kFormats) {
    names += (names.empty() ? "" : ", ") + std::string(format.name);
  }
  throw py::value_error("dtype: expected one of " + names + ", got '" + std::string(name) + "'");
}

std::uint64_t scalar_bits(PyObject* value, const ScalarFormat& format) {
  if (format.is_float()) return float_bits(to_double(value, format), format);
  const std::optional<WideInteger> number = to_integer(value, format);
  if (!number || number->magnitude > (number->negative ? least(format) : greatest(format))) {
    refuse_range(value, format);
  }
  return (number->negative ? ~number->magnitude + 1 : number->magnitude) & mask_of(format);
}

py::object scalar_value(const ScalarFormat& format, std::uint64_t bits) {
  if (format.is_float()) return py::float_(float_value(bits, format));
  bits &= mask_of(format);
  if (format.kind == DlCode::kBool) return py::bool_(bits != 0);
  if (bits <= greatest(format)) return py::int_(bits);
  return py::int_(static_cast<std::int64_t>(bits | ~mask_of(format)));
}

}  // namespace gpuprof::bindings
