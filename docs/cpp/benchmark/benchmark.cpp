// How long memsets of some sizes take, as a file for gpuprof compare, ab and history.
//
// benchmark FILE [MEMSETS]: how many of them a call is, to have something that became slower.
#include <cuda.h>
#include <gpuprof/gpuprof.hpp>

#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

void check(CUresult result) {
  if (result != CUDA_SUCCESS) throw std::runtime_error("CUDA error " + std::to_string(result));
}

void run(const std::string& file, int memsets, CUstream stream, CUdeviceptr buffer) {
  std::vector<gpuprof::BenchmarkResult> results;
  for (const std::size_t count : {std::size_t{1} << 14, std::size_t{1} << 16}) {
    const auto clear = [&] {
      for (int i = 0; i < memsets; ++i) check(cuMemsetD32Async(buffer, 0, count, stream));
    };
    gpuprof::BenchmarkOptions options;
    options.name = "clear";
    options.axes = {{"n", std::to_string(count)}};
    results.push_back(gpuprof::benchmark(stream, clear, options));
    std::cout << results.back().name << ": " << results.back().median_ms() * 1e3 << " us a call\n";
  }
  gpuprof::write_benchmarks(file, results);
}

}  // namespace

int main(int count, char** arguments) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr buffer = 0;
  try {
    if (count < 2) throw std::invalid_argument("usage: benchmark FILE [MEMSETS]");
    check(cuInit(0));
    check(cuDeviceGet(&device, 0));
    check(cuDevicePrimaryCtxRetain(&context, device));
    check(cuCtxSetCurrent(context));
    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check(cuMemAlloc(&buffer, sizeof(std::uint32_t) << 16));
    run(arguments[1], count > 2 ? std::stoi(arguments[2]) : 1, stream, buffer);
    check(cuMemFree(buffer));
    check(cuStreamDestroy(stream));
  } catch (const std::exception& error) {
    std::cerr << "benchmark: " << error.what() << '\n';
    return 1;
  }
}
