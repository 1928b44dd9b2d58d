// Devices, error names, and the log's own arguments.
#include "world.hpp"

namespace conformance {
namespace {

CASE(devices, Untouched) {
  Q(cuInit(0));
  char name[64];
  unsigned char uuid[16];
  unsigned flags = 0;
  P(cuDeviceGetName(name, 64, 0));
  P(cuDeviceGetName(name, 64, 99));
  P(cuDeviceGetAttribute(&v, 75, 0));
  P(cuDeviceGetAttribute(&v, 0, 0));
  P(cuDeviceGetAttribute(&v, 75, 99));
  P(cuDeviceGetUuid_v2(uuid, 0));
  P(cuDeviceGetUuid_v2(uuid, 99));
  P(cuDeviceTotalMem_v2(&n, 0));
  P(cuDeviceTotalMem_v2(&n, 99));
  P(cuDevicePrimaryCtxRelease_v2(99));
  P(cuDevicePrimaryCtxReset_v2(99));
  P(cuDevicePrimaryCtxGetState(99, &flags, &v));
  P(cuCtxCreate_v2(&h, 0, 99));
}

CASE(device_name_without_room, Untouched) {
  Q(cuInit(0));
  char name[64];
  cuDeviceGetName(name, 0, 0);
}

CASE(error_names, Untouched) {
  const char* text = "before";
  P(cuGetErrorName(600, &text));
  std::printf("  %s\n", text);
  P(cuGetErrorString(600, &text));
  std::printf("  %s\n", text);
  P(cuGetErrorName(12345, &text));
  std::printf("  %s\n", text == nullptr ? "NULL" : text);
  text = "before";
  P(cuGetErrorString(12345, &text));
  std::printf("  %s\n", text == nullptr ? "NULL" : text);
}

CASE(log_arguments, Untouched) {
  Q(cuInit(0));
  unsigned from = 0;
  char text[256];
  std::size_t size = sizeof text;
  P(cuLogsCurrent(nullptr, 0));
  P(cuLogsCurrent(&from, 1));
  P(cuLogsCurrent(&from, 0));
  P(cuLogsDumpToMemory(&from, text, &size, 0));
  std::printf("  size %zu\n", size);
  size = 0;
  P(cuLogsDumpToMemory(&from, text, &size, 0));
  P(cuLogsDumpToMemory(&from, nullptr, &size, 0));
}

CASE(node_arguments, Unloaded) {
  H n = nullptr;
  std::size_t count = 0;
  int type = -1;
  Q(cuGraphCreate(&g, 0));
  P(cuGraphGetNodes(g, nullptr, nullptr));
  P(cuGraphGetNodes(g, nullptr, &count));
  P(cuGraphNodeGetType(nullptr, &type));
  P(cuGraphUpload(nullptr, w.s));
  P(cuGraphInstantiateWithFlags(&n, nullptr, 0));
  P(cuGraphInstantiateWithFlags(nullptr, g, 0));
}

}  // namespace

}  // namespace conformance
