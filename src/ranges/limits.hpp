// Limits of flight recorders: a scope that took longer has its recorder write what it holds.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "timing/sample.hpp"

namespace gpuprof::ranges {

inline std::atomic<bool> limits_are_set{false};

// A scope's path, as text, or its name alone; and milliseconds: of the GPU, for a scope that it
// did not measure of the host.
using ScopeLimits = std::vector<std::pair<std::string, double>>;

// Sets those of a recorder, in place of what it had. Any thread; throws std::bad_alloc.
void set_limits(std::uint32_t recorder, const ScopeLimits& of_scopes);

// For finished samples, where limits_are_set. Any thread; does not wait for a dump.
void check_limits(const timing::Sample* const* samples, std::size_t count) noexcept;

}  // namespace gpuprof::ranges
