// Two kernels: timed in scopes, captured as a graph, and replayed with another factor each time.
#include <cuda_runtime.h>
#include <gpuprof/gpuprof.hpp>

#include <iostream>
#include <stdexcept>

constexpr int kCount = 1 << 20;
constexpr int kThreads = 256;
constexpr int kBlocks = kCount / kThreads;

__global__ void fill(float* x, float value) { x[blockIdx.x * blockDim.x + threadIdx.x] = value; }

// Reads the factor from device memory: an argument would stay as it was at the capture.
__global__ void saxpy(const float* factor, const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] += *factor * x[i];
}

namespace {

void check(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(cudaGetErrorString(result));
}

void step(cudaStream_t stream, const gpuprof::DeviceScalar<float>& factor, float* x, float* y) {
  const gpuprof::timer timer{"step", stream};
  {
    const gpuprof::timer clear{"fill", stream};
    fill<<<kBlocks, kThreads, 0, stream>>>(y, 1.0F);
  }
  const gpuprof::timer add{"saxpy", stream};
  saxpy<<<kBlocks, kThreads, 0, stream>>>(factor.ptr(), x, y);
}

float last_of(const float* y, cudaStream_t stream) {
  float value = 0.0F;
  check(cudaMemcpyAsync(&value, y + kCount - 1, sizeof value, cudaMemcpyDeviceToHost, stream));
  check(cudaStreamSynchronize(stream));
  return value;
}

void run(cudaStream_t stream, float* x, float* y) {
  gpuprof::DeviceScalar<float> factor{1.0F, stream};
  fill<<<kBlocks, kThreads, 0, stream>>>(x, 2.0F);

  for (int i = 0; i < 100; ++i) step(stream, factor, x, y);
  std::cout << gpuprof::stats();

  gpuprof::CaptureOptions options;
  options.name = "step";
  gpuprof::Capture capture{stream, options};
  step(stream, factor, x, y);
  capture.keep(factor);
  gpuprof::CapturedGraph graph = capture.finish();
  for (const gpuprof::GraphNode& node : graph.nodes()) std::cout << to_string(node) << '\n';

  for (const float value : {0.5F, 3.0F}) {
    factor.update(value);
    graph.launch(stream);
    std::cout << "factor " << value << ": y is " << last_of(y, stream) << '\n';
  }
  std::cout << graph.timings().to_string();
}

}  // namespace

int main() {
  cudaStream_t stream = nullptr;
  float* x = nullptr;
  float* y = nullptr;
  try {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check(cudaMalloc(&x, kCount * sizeof(float)));
    check(cudaMalloc(&y, kCount * sizeof(float)));
    run(stream, x, y);
    check(cudaFree(x));
    check(cudaFree(y));
    check(cudaStreamDestroy(stream));
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
