// A graph of copies and memsets: timed, captured, and replayed with another number each time.
#include <cuda.h>
#include <gpuprof/gpuprof.hpp>

#include <cstdint>
#include <iostream>
#include <stdexcept>

namespace {

void check(CUresult result) {
  if (result != CUDA_SUCCESS) throw std::runtime_error("CUDA error " + std::to_string(result));
}

// What is captured: clear a buffer, then copy the number that the host has set last.
void step(CUstream stream, CUdeviceptr buffer, const gpuprof::DeviceScalar<std::uint32_t>& from,
          const gpuprof::DeviceScalar<std::uint32_t>& to) {
  const gpuprof::timer timer{"step", stream};
  {
    const gpuprof::timer clear{"clear", stream};
    check(cuMemsetD32Async(buffer, 0, 1 << 20, stream));
  }
  const gpuprof::timer copy{"copy", stream};
  check(cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(to.ptr()),
                          reinterpret_cast<CUdeviceptr>(from.ptr()), sizeof(std::uint32_t),
                          stream));
}

void run(CUstream stream, CUdeviceptr buffer) {
  gpuprof::DeviceScalar<std::uint32_t> number{0, stream};
  const gpuprof::DeviceScalar<std::uint32_t> copied{0, stream};

  for (int i = 0; i < 3; ++i) step(stream, buffer, number, copied);
  std::cout << gpuprof::stats();

  gpuprof::CaptureOptions options;
  options.name = "step";
  gpuprof::Capture capture{stream, options};
  step(stream, buffer, number, copied);
  capture.keep(number);
  capture.keep(copied);
  gpuprof::CapturedGraph graph = capture.finish();
  for (const gpuprof::GraphNode& node : graph.nodes()) std::cout << to_string(node) << '\n';

  for (const std::uint32_t value : {1U, 2U, 3U}) {
    number.update(value);
    graph.launch(stream);
    std::cout << "replay " << graph.num_replays() << " copied " << copied.get(stream) << '\n';
  }
  std::cout << graph.timings().to_string();
}

}  // namespace

int main() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr buffer = 0;
  check(cuInit(0));
  check(cuDeviceGet(&device, 0));
  check(cuDevicePrimaryCtxRetain(&context, device));
  check(cuCtxSetCurrent(context));
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  check(cuMemAlloc(&buffer, sizeof(std::uint32_t) << 20));
  try {
    run(stream, buffer);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  check(cuMemFree(buffer));
  check(cuStreamDestroy(stream));
}
