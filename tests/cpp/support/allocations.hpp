// How often this process has allocated memory with operator new; a program can replace it once.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpuprof::tests {

extern std::atomic<std::uint64_t> allocations;  // counted in driver/process_test.cpp

}  // namespace gpuprof::tests
