// The floor of graphs: captures, launches and fills of device memory, made by C++ alone.
//
// A part of the library of raw_driver.cpp, with its conventions: host nanoseconds, negative for a
// driver's error code. Everything here needs raw_graphs_open(), and runs in the context that is
// current on the calling thread. The kernel of the graphs does nothing; graphs live as long as the
// process.
#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "raw_driver.hpp"

namespace {

using raw::Code;
using raw::Handle;
using raw::kSuccess;
using raw::kUnresolved;
using raw::now_ns;
using raw::resolve;

constexpr int kThreadLocal = 1;
constexpr unsigned long long kAutoFreeOnLaunch = 1;

constexpr char kPtx[] =
    ".version 7.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry nothing()\n"
    "{\n"
    "    ret;\n"
    "}\n";

struct Driver {
  Code (*module_load)(Handle*, const void*) = nullptr;
  Code (*module_function)(Handle*, Handle, const char*) = nullptr;
  Code (*launch_kernel)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, Handle, void**, void**) = nullptr;
  Code (*synchronize)(Handle) = nullptr;
  Code (*begin_capture)(Handle, int) = nullptr;
  Code (*end_capture)(Handle, Handle*) = nullptr;
  Code (*instantiate)(Handle*, Handle, unsigned long long) = nullptr;
  Code (*launch)(Handle, Handle) = nullptr;
  Code (*exec_destroy)(Handle) = nullptr;
  Code (*graph_destroy)(Handle) = nullptr;
  Code (*allocate)(std::uint64_t*, std::size_t) = nullptr;
  Code (*memset)(std::uint64_t, unsigned, std::size_t, Handle) = nullptr;
  Handle kernel = nullptr;
};

Driver driver;

Code launch_kernels(Handle stream, std::size_t count) {
  Code code = kSuccess;
  for (std::size_t n = 0; n < count && code == kSuccess; ++n) {
    code = driver.launch_kernel(driver.kernel, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  }
  return code;
}

Code capture(Handle stream, std::size_t kernels, Handle& graph, Handle& exec) {
  Code code = driver.begin_capture(stream, kThreadLocal);
  if (code == kSuccess) code = launch_kernels(stream, kernels);
  if (code == kSuccess) code = driver.end_capture(stream, &graph);
  if (code == kSuccess) code = driver.instantiate(&exec, graph, kAutoFreeOnLaunch);
  return code;
}

// Calls `turn` `count` times, in bursts of `burst` with an untimed wait for `stream` after each.
template <typename Turn>
std::int64_t in_bursts(Handle stream, std::size_t count, std::size_t burst, Turn turn) {
  std::int64_t spent = 0;
  Code code = kSuccess;
  for (std::size_t done = 0; done < count && code == kSuccess;) {
    const std::size_t stop = std::min(count, done + burst);
    const std::int64_t begun = now_ns();
    for (; done < stop && code == kSuccess; ++done) code = turn();
    spent += now_ns() - begun;
    driver.synchronize(stream);
  }
  return code == kSuccess ? spent : -std::int64_t{code};
}

}  // namespace

extern "C" {

// Finds the functions and loads the kernel into the current context. Returns a code.
int raw_graphs_open() {
  Handle library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return kUnresolved;
  const bool found = resolve(library, "cuModuleLoadData", driver.module_load) &&
                     resolve(library, "cuModuleGetFunction", driver.module_function) &&
                     resolve(library, "cuLaunchKernel", driver.launch_kernel) &&
                     resolve(library, "cuStreamSynchronize", driver.synchronize) &&
                     resolve(library, "cuStreamBeginCapture_v2", driver.begin_capture) &&
                     resolve(library, "cuStreamEndCapture", driver.end_capture) &&
                     resolve(library, "cuGraphInstantiateWithFlags", driver.instantiate) &&
                     resolve(library, "cuGraphLaunch", driver.launch) &&
                     resolve(library, "cuGraphExecDestroy", driver.exec_destroy) &&
                     resolve(library, "cuGraphDestroy", driver.graph_destroy) &&
                     resolve(library, "cuMemAlloc_v2", driver.allocate) &&
                     resolve(library, "cuMemsetD32Async", driver.memset);
  if (!found) return kUnresolved;
  Handle module = nullptr;
  Code code = driver.module_load(&module, kPtx);
  if (code == kSuccess) code = driver.module_function(&driver.kernel, module, "nothing");
  return code;
}

// Launches `count` kernels on a stream, which may be capturing. Returns a code.
int raw_kernels(std::uintptr_t stream, std::size_t count) {
  return launch_kernels(reinterpret_cast<Handle>(stream), count);
}

// An executable graph of `kernels` kernels in a row, captured on `stream`; or 0.
std::uintptr_t raw_graph(std::uintptr_t stream, std::size_t kernels) {
  Handle graph = nullptr;
  Handle exec = nullptr;
  const Code code = capture(reinterpret_cast<Handle>(stream), kernels, graph, exec);
  return code == kSuccess ? reinterpret_cast<std::uintptr_t>(exec) : 0;
}

// Launches an executable graph `count` times, in bursts.
std::int64_t raw_launches(std::uintptr_t exec_value, std::uintptr_t stream_value, std::size_t count,
                          std::size_t burst) {
  const auto exec = reinterpret_cast<Handle>(exec_value);
  const auto stream = reinterpret_cast<Handle>(stream_value);
  return in_bursts(stream, count, burst, [=] { return driver.launch(exec, stream); });
}

// Captures and instantiates `kernels` kernels `count` times; what is destroyed is not timed.
std::int64_t raw_captures(std::uintptr_t stream, std::size_t kernels, std::size_t count) {
  std::int64_t spent = 0;
  for (std::size_t n = 0; n < count; ++n) {
    Handle graph = nullptr;
    Handle exec = nullptr;
    const std::int64_t begun = now_ns();
    const Code code = capture(reinterpret_cast<Handle>(stream), kernels, graph, exec);
    spent += now_ns() - begun;
    if (code != kSuccess) return -std::int64_t{code};
    driver.exec_destroy(exec);
    driver.graph_destroy(graph);
  }
  return spent;
}

// Writes a 4-byte value to device memory `count` times, in bursts.
std::int64_t raw_memsets(std::uintptr_t stream_value, std::size_t count, std::size_t burst) {
  static std::uint64_t address = 0;
  if (address == 0) {
    const Code code = driver.allocate(&address, sizeof(unsigned));
    if (code != kSuccess) return -std::int64_t{code};
  }
  const auto stream = reinterpret_cast<Handle>(stream_value);
  unsigned value = 0;
  return in_bursts(stream, count, burst,
                   [&] { return driver.memset(address, ++value, 1, stream); });
}

}  // extern "C"
