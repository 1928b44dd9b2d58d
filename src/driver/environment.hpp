// Variables of the environment.
#pragma once

#include <string>

namespace gpuprof::driver {

// Whether a variable of the environment says yes: 1, true, on or yes, in any case and with spaces
// around it. Anything else, and no variable at all, is no.
bool is_set(const std::string& variable);

// A variable that names code to load; null where there is none, and in a program that runs with
// more rights than its user has.
const char* secure_environment(const char* name) noexcept;

}  // namespace gpuprof::driver
