#include "bindings/interop/scalar_value.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "bindings/python/callbacks.hpp"
#include "bindings/python/objects.hpp"

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

// Nothing where the value is no plain int or float, or does not fit.
std::optional<std::uint64_t> bits_of(PyObject* value, const ScalarFormat& format) {
  if (format.is_float()) {
    if (PyFloat_Check(value) == 0 && PyLong_CheckExact(value) == 0) return std::nullopt;
    const double number = PyFloat_AsDouble(value);
    if (number != -1.0 || PyErr_Occurred() == nullptr) return float_bits(number, format);
    PyErr_Clear();
    return std::nullopt;
  }
  if (PyLong_Check(value) == 0) return std::nullopt;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  auto bits = static_cast<std::uint64_t>(number);
  if (overflow > 0) {
    bits = PyLong_AsUnsignedLongLong(value);
    if (PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      return std::nullopt;
    }
  }
  const bool is_negative = overflow == 0 && number < 0;
  const bool fits = is_negative ? ~bits + 1 <= least(format) : bits <= greatest(format);
  if (overflow < 0 || !fits) return std::nullopt;
  return bits & mask_of(format);
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
  if (const auto bits = bits_of(value, format)) return *bits;
  const bool is_float = format.is_float();
  PyObject* plain = checked(
      PyObject_CallFunction(callback(Callback::kPlainNumber), "OsKK", value, format.name,
                            static_cast<unsigned long long>(is_float ? 0 : least(format)),
                            static_cast<unsigned long long>(is_float ? 0 : greatest(format))));
  const auto bits = bits_of(plain, format);
  Py_DECREF(plain);
  if (!bits) throw std::bad_optional_access();  // a plain number has some
  return *bits;
}

py::object scalar_value(const ScalarFormat& format, std::uint64_t bits) {
  if (format.is_float()) return py::float_(float_value(bits, format));
  bits &= mask_of(format);
  if (format.kind == DlCode::kBool) return py::bool_(bits != 0);
  if (bits <= greatest(format)) return py::int_(bits);
  return py::int_(static_cast<std::int64_t>(bits | ~mask_of(format)));
}

}  // namespace gpuprof::bindings
