// Scopes within scopes, and their times.
#include <gpuprof/gpuprof.hpp>

#include <iostream>

int main() {
  gpuprof::timer step{"step"};
  gpuprof::timer forward{"forward", gpuprof::Clock::kCpu};
  const gpuprof::Sample sample = forward.stop();
  std::cout << "gpuprof " << gpuprof::version() << ": " << sample.path() << " on the clock "
            << sample.clock() << (sample.ms() >= 0.0 ? " was measured\n" : " was not measured\n");
}
