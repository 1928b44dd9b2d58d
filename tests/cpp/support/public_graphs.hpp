// Graphs as users of the library make them, on the fake driver.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "gpuprof/capture.hpp"
#include "gpuprof/timer.hpp"
#include "support/graphs.hpp"

namespace gpuprof::tests {

// A kernel of 1 us with this name.
inline void kernel(CUstream stream, const char* name, unsigned blocks = 1) {
  using Function = int(CUstream, const char*, std::int64_t, const unsigned*, const unsigned*,
                       unsigned, int, int);
  static auto* const call = entry<Function>("fakecuda_kernel");
  const unsigned grid[3] = {blocks, 1, 1};
  const unsigned block[3] = {256, 1, 1};
  ASSERT_EQ(call(stream, name, 1000, grid, block, 0, 0, 0), 0);
}

inline CaptureOptions named(std::string name) {
  CaptureOptions options;
  options.name = std::move(name);
  return options;
}

// The graph of what `body` queues on the stream.
template <typename Body>
CapturedGraph graph_of(CUstream stream, Body&& body, CaptureOptions options = {}) {
  gpuprof::Capture capture{stream, std::move(options)};
  body();
  return capture.finish();
}

// The error of a type that `action` throws; a test failure and an empty one otherwise.
template <typename Expected, typename Action>
std::string text_of(Action&& action) {
  try {
    action();
  } catch (const Expected& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error was thrown: " << error.what();
    return {};
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

}  // namespace gpuprof::tests
