// Results of benchmarks as Python reads them: the formats of python/gpuprof/_results, version 1.
#pragma once

#include "gpuprof/benchmark.hpp"

namespace gpuprof::api {

// Sets the machine, with its GPU `ordinal`, and the time.
void describe_machine(BenchmarkResult& result, int ordinal);

}  // namespace gpuprof::api
