#include "driver.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

namespace conformance {

#define CONFORMANCE_X(name, parameters) int(*name) parameters = nullptr;
CONFORMANCE_ENTRY_POINTS(CONFORMANCE_X)
#undef CONFORMANCE_X

H mod = nullptr;

// Both kernels run on one thread. `spin` reads the GPU's nanosecond timer until its time is over.
const char* const PTX = R"(
.version 7.0
.target sm_70
.address_size 64

.visible .entry spin(.param .u64 ns)
{
  .reg .u64 %start, %now, %length, %gone;
  .reg .pred %more;
  ld.param.u64 %length, [ns];
  mov.u64 %start, %globaltimer;
AGAIN:
  mov.u64 %now, %globaltimer;
  sub.u64 %gone, %now, %start;
  setp.lt.u64 %more, %gone, %length;
  @%more bra AGAIN;
  ret;
}

.visible .entry boom()
{
  trap;
  ret;
}
)";

namespace {

void* library = nullptr;
H spin_kernel = nullptr;
H boom_kernel = nullptr;
H spin_of_a_library = nullptr;
int (*fake_kernel)(H, const char*, long long, const unsigned*, const unsigned*, unsigned, int,
                   int) = nullptr;
int (*fake_trap)(H) = nullptr;

constexpr unsigned kOne[3] = {1, 1, 1};

int launch(H kernel, H stream, void** parameters) {
  return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
}

}  // namespace

void open_driver(const char* path) {
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(2);
  }
#define CONFORMANCE_X(name, parameters) name = reinterpret_cast<int(*) parameters>(symbol(#name));
  CONFORMANCE_ENTRY_POINTS(CONFORMANCE_X)
#undef CONFORMANCE_X
  fake_kernel = reinterpret_cast<decltype(fake_kernel)>(symbol("fakecuda_kernel"));
  fake_trap = reinterpret_cast<int (*)(H)>(symbol("fakecuda_trap"));
}

void* symbol(const char* name) { return dlsym(library, name); }

const char* named(int code) {
  thread_local char text[96];
  const char* name = nullptr;
  if (cuGetErrorName(code, &name) != 0 || name == nullptr) name = "?";
  if (std::strncmp(name, "CUDA_", 5) == 0) name += 5;
  std::snprintf(text, sizeof text, "%d %s", code, name);
  return text;
}

int row(const char* call, int code) {
  // Recorded rows are written without spaces, however the source is laid out.
  std::string text;
  std::remove_copy(call, call + std::strlen(call), std::back_inserter(text), ' ');
  std::printf("  %-62s -> %s\n", text.c_str(), named(code));
  return code;
}

void must(const char* call, int code) {
  if (code == 0) return;
  std::printf("  set-up failed: %s -> %s\n", call, named(code));
  std::exit(1);
}

bool is_fake() { return fake_kernel != nullptr; }

void load_kernels() {
  if (is_fake()) return;
  P(cuModuleLoadData(&mod, PTX));
  Q(cuModuleGetFunction(&spin_kernel, mod, "spin"));
  Q(cuModuleGetFunction(&boom_kernel, mod, "boom"));
}

int spin(H stream, unsigned microseconds) {
  unsigned long long ns = microseconds * 1000ULL;
  if (is_fake()) {
    return fake_kernel(stream, "spin", static_cast<long long>(ns), kOne, kOne, 0, 0, 0);
  }
  void* parameters[] = {&ns};
  return launch(spin_kernel, stream, parameters);
}

int boom(H stream) {
  if (is_fake()) return fake_trap(stream);
  return launch(boom_kernel, stream, nullptr);
}

int spin_shaped(H stream, const Shape& shape) {
  if (is_fake()) {
    return fake_kernel(stream, "spin", 10000, shape.grid, shape.block, shape.shared, 0, 0);
  }
  unsigned long long ns = 10000;
  void* parameters[] = {&ns};
  return cuLaunchKernel(spin_kernel, shape.grid[0], shape.grid[1], shape.grid[2], shape.block[0],
                        shape.block[1], shape.block[2], shape.shared, stream, parameters, nullptr);
}

int spin_of_library(H stream) {
  if (is_fake()) return fake_kernel(stream, "spin", 10000, kOne, kOne, 0, 2, 0);
  if (spin_of_a_library == nullptr) {
    H library_of_kernels = nullptr;
    Q(cuLibraryLoadData(&library_of_kernels, PTX, nullptr, nullptr, 0, nullptr, nullptr, 0));
    Q(cuLibraryGetKernel(&spin_of_a_library, library_of_kernels, "spin"));
  }
  unsigned long long ns = 10000;
  void* parameters[] = {&ns};
  return launch(spin_of_a_library, stream, parameters);
}

int spin_early(H stream) {
  if (is_fake()) return fake_kernel(stream, "spin", 10000, kOne, kOne, 0, 0, 1);
  constexpr int kProgrammaticStreamSerialization = 6;
  unsigned long long ns = 10000;
  void* parameters[] = {&ns};
  LaunchAttribute early = {};
  early.id = kProgrammaticStreamSerialization;
  early.value[0] = 1;
  const auto handle = reinterpret_cast<fakecuda::Handle>(stream);
  const Launch how = {{1, 1, 1}, {1, 1, 1}, 0, handle, &early, 1};
  return cuLaunchKernelEx(&how, spin_kernel, parameters, nullptr);
}

int status(H stream) {
  int state = -1;
  const int code = cuStreamIsCapturing(stream, &state);
  std::printf("  status(stream) rc=%s state=%d\n", named(code), state);
  return code;
}

H end(H stream) {
  H graph = nullptr;
  const int code = cuStreamEndCapture(stream, &graph);
  std::printf("  cuStreamEndCapture -> %s graph=%s\n", named(code), graph ? "set" : "NULL");
  return graph;
}

std::vector<H> nodes_of(H graph) {
  std::size_t count = 0;
  Q(cuGraphGetNodes(graph, nullptr, &count));
  std::vector<H> all(count);
  if (count != 0) Q(cuGraphGetNodes(graph, all.data(), &count));
  return all;
}

void nodes(H graph) {
  const std::vector<H> all = nodes_of(graph);
  std::printf("  nodes=%zu types:", all.size());
  for (H node : all) {
    int type = -1;
    Q(cuGraphNodeGetType(node, &type));
    std::printf(" %d", type);
  }
  std::printf("\n");
}

void result_of(const Update& update, H graph) {
  const std::vector<H> all = nodes_of(graph);
  const auto place = [&](H node) {
    const auto found = std::find(all.begin(), all.end(), node);
    if (node == nullptr) return std::string("NULL");
    return found == all.end() ? std::string("?") : std::to_string(found - all.begin());
  };
  std::printf("  result=%d node=%s from=%s\n", update.result, place(update.error_node).c_str(),
              place(update.error_from_node).c_str());
}

void nap() { usleep(1000); }

}  // namespace conformance
