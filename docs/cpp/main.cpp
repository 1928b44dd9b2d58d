// Times the steps of a loop, and writes them to a trace if a path is given.
#include <gpuprof/gpuprof.hpp>

#include <exception>
#include <iostream>
#include <optional>

namespace {

// A GPU where there is one: this program launches nothing, so it says what events alone cost.
gpuprof::Clock best_clock() {
  return gpuprof::cuda_available() ? gpuprof::Clock::kCuda : gpuprof::Clock::kCpu;
}

void train(int steps, gpuprof::Clock clock) {
  for (int i = 0; i < steps; ++i) {
    const gpuprof::timer step{"step", clock};
    {
      const gpuprof::timer forward{"forward", clock};
      // forward<<<grid, block, 0, stream>>>(...);
    }
    const gpuprof::timer backward{"backward", clock};
    // backward<<<grid, block, 0, stream>>>(...);
  }
}

}  // namespace

int main(int count, char** arguments) {
  try {
    std::optional<gpuprof::TraceWriter> trace;
    if (count > 1) trace.emplace(arguments[1]);
    train(100, best_clock());
    std::cout << gpuprof::stats();
  } catch (const std::exception& error) {
    std::cerr << "example: " << error.what() << '\n';
    return 1;
  }
}
