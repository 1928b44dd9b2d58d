// Results of benchmarks as Python reads them: the formats of python/gpuprof/_results, version 1.
#pragma once

#include <string>

namespace gpuprof::api {

// The machine and its GPU `ordinal`, as a member of a result.
std::string machine_json(int ordinal);

// The time as ISO 8601 text in UTC.
std::string utc_now();

}  // namespace gpuprof::api
