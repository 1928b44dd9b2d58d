// What the fake driver has counted, for tests to look at. Everything here wants the lock held.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "state.hpp"

namespace fakecuda {

// Handles and labels of what is alive: made by a call, not yet destroyed, in a living context, and
// not abandoned. Kinds: event, stream, graph, exec, context, primary, memory, host_memory.
using Live = std::vector<std::pair<Handle, std::string>>;
std::vector<std::pair<const char*, Live>> live_objects(const State& s);

std::string report_json(const State& s);

}  // namespace fakecuda
