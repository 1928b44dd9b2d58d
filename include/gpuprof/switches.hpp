/// @file
/// Timing on and off.
#pragma once

#include "gpuprof/version.hpp"

GPUPROF_BEGIN_NAMESPACE

/// Scopes measure from now on, as they do from the start. Where the environment variable
/// `GPUPROF_DISABLE` is set, timing stays off. Any thread.
void enable() noexcept;
/// Scopes that are entered from now on measure nothing, which costs one load of an atomic.
void disable() noexcept;
/// Whether scopes measure.
[[nodiscard]] bool is_enabled() noexcept;

GPUPROF_END_NAMESPACE
