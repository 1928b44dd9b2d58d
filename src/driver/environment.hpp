// Switches in the environment.
#pragma once

#include <string>

namespace gpuprof::driver {

// Whether a variable of the environment says yes: 1, true, on or yes, in any case and with spaces
// around it. Anything else, and no variable at all, is no.
bool is_set(const std::string& variable);

}  // namespace gpuprof::driver
