#include "graphs/device_scalar_type.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace gpuprof::graphs {

namespace {

constexpr std::array<ScalarFormat, 13> kFormats{{
    {"bool", ScalarKind::kBool, 1},
    {"int8", ScalarKind::kSigned, 1},
    {"int16", ScalarKind::kSigned, 2},
    {"int32", ScalarKind::kSigned, 4},
    {"int64", ScalarKind::kSigned, 8},
    {"uint8", ScalarKind::kUnsigned, 1},
    {"uint16", ScalarKind::kUnsigned, 2},
    {"uint32", ScalarKind::kUnsigned, 4},
    {"uint64", ScalarKind::kUnsigned, 8},
    {"float16", ScalarKind::kFloat, 2},
    {"bfloat16", ScalarKind::kBfloat, 2},
    {"float32", ScalarKind::kFloat, 4},
    {"float64", ScalarKind::kFloat, 8},
}};

constexpr int kDoubleFraction = 52;
constexpr int kDoubleBias = 1023;
constexpr std::uint64_t kDoubleExponents = 0x7FF;

struct Layout {
  int exponent_bits;
  int fraction_bits;

  [[nodiscard]] constexpr std::uint64_t top_exponent() const noexcept {
    return (std::uint64_t{1} << exponent_bits) - 1;
  }
  [[nodiscard]] constexpr int bias() const noexcept { return (1 << (exponent_bits - 1)) - 1; }
  [[nodiscard]] constexpr std::uint64_t infinity() const noexcept {
    return top_exponent() << fraction_bits;
  }
};

// Of the formats narrower than a double.
Layout layout_of(const ScalarFormat& format) noexcept {
  if (format.kind == ScalarKind::kBfloat) return {8, 7};
  return format.bytes == 2 ? Layout{5, 10} : Layout{8, 23};
}

std::uint64_t bits_of(double value) noexcept {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

double double_of(std::uint64_t bits) noexcept {
  double value = 0.0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// The magnitude of a finite double, rounded to `to`.
std::uint64_t round_finite(std::uint64_t exponent, std::uint64_t fraction, Layout to) noexcept {
  if (exponent == 0) return 0;  // a subnormal double is far below the narrower formats
  const std::uint64_t significand = fraction | (std::uint64_t{1} << kDoubleFraction);
  int wanted = static_cast<int>(exponent) - kDoubleBias + to.bias();
  int shift = kDoubleFraction - to.fraction_bits;
  if (wanted < 1) {  // subnormal in the narrower format
    shift += 1 - wanted;
    wanted = 0;
  }
  if (shift > kDoubleFraction + 1) return 0;
  std::uint64_t kept = significand >> shift;
  const std::uint64_t rest = significand & ((std::uint64_t{1} << shift) - 1);
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  if (rest > half || (rest == half && (kept & 1U) != 0)) ++kept;
  // The leading one of a normal number, or a carry out of the fraction, moves the exponent on.
  const std::uint64_t below =
      wanted == 0 ? 0 : static_cast<std::uint64_t>(wanted - 1) << to.fraction_bits;
  return std::min(below + kept, to.infinity());
}

std::uint64_t narrow(double value, Layout to) noexcept {
  const std::uint64_t bits = bits_of(value);
  const std::uint64_t sign = (bits >> 63U) << (to.exponent_bits + to.fraction_bits);
  const std::uint64_t exponent = (bits >> kDoubleFraction) & kDoubleExponents;
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << kDoubleFraction) - 1);
  if (exponent != kDoubleExponents) return sign | round_finite(exponent, fraction, to);
  if (fraction == 0) return sign | to.infinity();
  const std::uint64_t quiet = std::uint64_t{1} << (to.fraction_bits - 1);
  return sign | to.infinity() | quiet | (fraction >> (kDoubleFraction - to.fraction_bits));
}

double widen(std::uint64_t bits, Layout from) noexcept {
  const bool negative = ((bits >> (from.exponent_bits + from.fraction_bits)) & 1U) != 0;
  const std::uint64_t exponent = (bits >> from.fraction_bits) & from.top_exponent();
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << from.fraction_bits) - 1);
  if (exponent == from.top_exponent()) {
    const std::uint64_t sign = negative ? std::uint64_t{1} << 63U : 0;
    return double_of(sign | (kDoubleExponents << kDoubleFraction) |
                     (fraction << (kDoubleFraction - from.fraction_bits)));
  }
  const std::uint64_t leading = exponent == 0 ? 0 : std::uint64_t{1} << from.fraction_bits;
  const int scale = std::max(static_cast<int>(exponent), 1) - from.bias() - from.fraction_bits;
  const double magnitude = std::ldexp(static_cast<double>(leading | fraction), scale);
  return negative ? -magnitude : magnitude;
}

std::uint64_t mask_of(const ScalarFormat& format) noexcept {
  return format.bytes == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8U * format.bytes)) - 1;
}

std::uint64_t greatest(const ScalarFormat& format) noexcept {
  if (format.kind == ScalarKind::kBool) return 1;
  return format.kind == ScalarKind::kSigned ? mask_of(format) >> 1U : mask_of(format);
}

// The magnitude of the smallest integer.
std::uint64_t least(const ScalarFormat& format) noexcept {
  return format.kind == ScalarKind::kSigned ? greatest(format) + 1 : 0;
}

}  // namespace

const ScalarFormat* scalar_format(std::string_view name) noexcept {
  for (const ScalarFormat& format : kFormats) {
    if (name == format.name) return &format;
  }
  return nullptr;
}

std::string scalar_format_names() {
  std::string names;
  for (const ScalarFormat& format : kFormats) {
    if (!names.empty()) names += ", ";
    names += format.name;
  }
  return names;
}

std::string range_of(const ScalarFormat& format) {
  const std::uint64_t lowest = least(format);
  return (lowest == 0 ? "" : "-") + std::to_string(lowest) + " to " +
         std::to_string(greatest(format));
}

std::optional<std::uint64_t> encode(const ScalarFormat& format, WideInteger value) noexcept {
  if (value.magnitude > (value.negative ? least(format) : greatest(format))) return std::nullopt;
  const std::uint64_t bits = value.negative ? ~value.magnitude + 1 : value.magnitude;
  return bits & mask_of(format);
}

std::uint64_t encode(const ScalarFormat& format, double value) noexcept {
  return format.bytes == 8 ? bits_of(value) : narrow(value, layout_of(format));
}

WideInteger decode_integer(const ScalarFormat& format, std::uint64_t bits) noexcept {
  bits &= mask_of(format);
  if (format.kind != ScalarKind::kSigned || bits <= greatest(format)) return {false, bits};
  return {true, (~bits + 1) & mask_of(format)};
}

double decode_float(const ScalarFormat& format, std::uint64_t bits) noexcept {
  return format.bytes == 8 ? double_of(bits) : widen(bits, layout_of(format));
}

}  // namespace gpuprof::graphs
