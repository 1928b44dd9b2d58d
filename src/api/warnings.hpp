// Passing on what the core warned of.
#pragma once

#include "driver/error.hpp"

namespace gpuprof::api {

void pass_on_warnings() noexcept;

// Where the program may be told: at the end of a scope, a flush, a close. One load for nothing.
inline void emit_pending_warnings() noexcept {
  if (driver::warnings_pending()) pass_on_warnings();
}

}  // namespace gpuprof::api
