// The number formats of a device scalar: their names, ranges and bit patterns.
//
// Pure functions of their arguments, for any thread. Floating-point formats are rounded to nearest,
// ties to even, straight from the double, with subnormal numbers, infinities and NaN as IEEE 754
// has them: a finite number beyond the format's range becomes infinite, as it does in NumPy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gpuprof::graphs {

enum class ScalarKind : std::uint8_t { kBool, kSigned, kUnsigned, kFloat, kBfloat };

struct ScalarFormat {
  const char* name;  // NumPy's
  ScalarKind kind;
  std::uint8_t bytes;

  [[nodiscard]] bool is_float() const noexcept {
    return kind == ScalarKind::kFloat || kind == ScalarKind::kBfloat;
  }
};

// The format with this name: "float32", "bfloat16", ... Null if there is none.
const ScalarFormat* scalar_format(std::string_view name) noexcept;

// All names, for messages: "bool, int8, ...".
std::string scalar_format_names();

// An integer of up to 64 bits and a sign.
struct WideInteger {
  bool negative = false;
  std::uint64_t magnitude = 0;
};

// The integers that an integer format or bool holds, in words: "0 to 255".
std::string range_of(const ScalarFormat& format);

// The bits of an integer in an integer format or bool, in the low bytes; nothing if it does not
// fit.
std::optional<std::uint64_t> encode(const ScalarFormat& format, WideInteger value) noexcept;

// The bits of the nearest number of a floating-point format, in the low bytes.
std::uint64_t encode(const ScalarFormat& format, double value) noexcept;

// The number that `bits` mean, in the two worlds of formats; higher bits are not looked at.
WideInteger decode_integer(const ScalarFormat& format, std::uint64_t bits) noexcept;
double decode_float(const ScalarFormat& format, std::uint64_t bits) noexcept;

}  // namespace gpuprof::graphs
