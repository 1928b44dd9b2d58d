// Ranges that are started and ended, on any threads and in any order, each known by a number.
//
// At most kMaxStarted are open at once. What is open at exit is left as it is. Everything here
// needs the interpreter lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "bindings/ranges/range_attributes.hpp"

namespace gpuprof::bindings::started_ranges {

inline constexpr std::size_t kMaxStarted = 65'536;

// Starts a range of a valid face. Its number, or 0 where nobody listens and, with one warning,
// where there are too many.
std::uint64_t start(const std::shared_ptr<RangeAttributes>& face);

// Ends it. False if no range of that number is open; 0 never is.
bool end(std::uint64_t number);

// Whether NVTX has it.
[[nodiscard]] bool is_in_nvtx(std::uint64_t number) noexcept;

}  // namespace gpuprof::bindings::started_ranges
