/// @file
/// The ranges of a program, declared once.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpuprof/annotate.hpp"

GPUPROF_BEGIN_NAMESPACE

/// A range: its name in its namespace, "engine.decode", and what it is in a few words.
struct RangeSpec {
  std::string name;
  std::string description;
};

/// A range of a catalog, for `gpuprof::annotate`. A handle; lives as long as the process needs it.
class CatalogRange {
 public:
  [[nodiscard]] const RangeSpec& spec() const noexcept { return spec_; }

 private:
  friend class annotate;
  friend class RangeCatalog;
  CatalogRange(RangeSpec spec, std::shared_ptr<const api::RangeOfName> range)
      : spec_(std::move(spec)), range_(std::move(range)) {}
  RangeSpec spec_;
  std::shared_ptr<const api::RangeOfName> range_;
};

/// The ranges of a program, declared and checked once.
///
/// @code
/// const gpuprof::RangeCatalog kEngine{"engine", {{"engine.decode", "one step of decoding"}}};
/// const gpuprof::CatalogRange& kDecode = kEngine["decode"];
/// ...
/// gpuprof::annotate range{kDecode};
/// @endcode
///
/// Its ranges have their namespace as category.
class RangeCatalog {
 public:
  /// @throws std::invalid_argument if the namespace is empty or has a NUL, there is no range, or a
  ///     range is outside the namespace, there twice, has a NUL in its name, or no description.
  RangeCatalog(std::string name_space, std::initializer_list<RangeSpec> specs,
               const RangeOptions& options = {});

  /// The range of a name, with or without the namespace before it.
  /// @throws std::out_of_range without one; the message has the names.
  const CatalogRange& operator[](std::string_view name) const;
  [[nodiscard]] const std::string& name_space() const noexcept { return namespace_; }
  /// In the order of their declaration.
  [[nodiscard]] const std::vector<CatalogRange>& ranges() const noexcept { return ranges_; }

 private:
  std::string namespace_;
  std::vector<CatalogRange> ranges_;
};

GPUPROF_END_NAMESPACE
