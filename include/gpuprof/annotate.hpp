/// @file
/// Ranges with names, in NVTX and in traces.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>

#include "gpuprof/version.hpp"

namespace gpuprof::api {
class RangeOfName;
}

GPUPROF_BEGIN_NAMESPACE

/// A colour, 0xAARRGGBB.
class Color {
 public:
  /// 0xRRGGBB is opaque.
  constexpr explicit Color(std::uint32_t value) noexcept
      : argb_((value >> 24U) == 0 ? value | 0xFF000000U : value) {}
  /// A basic colour of CSS such as "red", "#rrggbb" or "#aarrggbb".
  /// @throws std::invalid_argument for another text; the message has the names.
  explicit Color(std::string_view name);
  [[nodiscard]] constexpr std::uint32_t argb() const noexcept { return argb_; }

 private:
  std::uint32_t argb_;
};

/// A number beside a range.
class Payload {
 public:
  template <typename Number, typename = std::enable_if_t<std::is_arithmetic_v<Number>>>
  constexpr Payload(Number value) noexcept {  // NOLINT: a number is a payload
    if constexpr (std::is_floating_point_v<Number>) {
      kind = Kind::kReal;
      real = static_cast<double>(value);
    } else if constexpr (std::is_signed_v<Number>) {
      kind = Kind::kSigned;
      integer = value;
    } else {
      kind = Kind::kUnsigned;
      natural = value;
    }
  }
  enum class Kind : std::uint8_t { kSigned, kUnsigned, kReal };
  Kind kind = Kind::kSigned;
  std::int64_t integer = 0;
  std::uint64_t natural = 0;
  double real = 0.0;
};

/// What tools and traces show of a range besides its name.
struct RangeOptions {
  std::optional<Color> color{};
  std::string_view category{};  ///< in traces "annotation" without one
  std::optional<Payload> payload{};
  std::optional<std::string_view> domain{};  ///< without one "gpuprof"; "" is NVTX's own
};

class CatalogRange;

/// Shows the rest of a block as a range, to NVTX where that is on and to the traces that are open.
///
/// @code
/// gpuprof::annotate range{"decode", {gpuprof::Color{"green"}, "engine", batch_size}};
/// @endcode
///
/// Where nobody listens it costs two loads of atomics. Never throws. It must end on the thread that
/// it began on, in the reverse order of others, as variables of blocks do; across threads, use
/// range_start() and range_end(). A name that is empty or has a NUL shows nothing, with one
/// warning.
class annotate {
 public:
  [[nodiscard]] GPUPROF_HIDDEN explicit annotate(std::string_view name) noexcept
      : annotate(name, {}) {}
  [[nodiscard]] annotate(std::string_view name, const RangeOptions& options) noexcept;
  /// A range of a catalog, which was looked up before.
  [[nodiscard]] explicit annotate(const CatalogRange& range) noexcept;
  annotate(const annotate&) = delete;
  annotate& operator=(const annotate&) = delete;
  GPUPROF_HIDDEN ~annotate() {
    if (range_ != nullptr) close();
  }

 private:
  void open(std::shared_ptr<const api::RangeOfName> range) noexcept;
  void close() noexcept;

  std::shared_ptr<const api::RangeOfName> range_;
  std::int64_t begin_ = 0;  // 0: no trace recorded then
  bool pushed_ = false;
  std::uint32_t thread_ = 0;
};

/// Shows a moment.
void mark(std::string_view name, const RangeOptions& options = {}) noexcept;

/// Begins a range that may end on any thread, in any order; 0 where nobody listens.
[[nodiscard]] std::uint64_t range_start(std::string_view name, const RangeOptions& options = {});
/// Ends it. False if no range of that number is open; 0 never is.
bool range_end(std::uint64_t number) noexcept;

GPUPROF_END_NAMESPACE
