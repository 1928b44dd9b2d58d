// Finding entry points, and what works before a device and a context are there.
#include <cstring>
#include <string>

#include "world.hpp"

namespace conformance {
namespace {

struct Asked {
  const char* name;
  int version;
};

const char* variant_of(const char* name, const void* entry) {
  for (const char* suffix : {"", "_v2", "_v3", "_v4"}) {
    if (symbol((std::string(name) + suffix).c_str()) == entry) return *suffix ? suffix : "base";
  }
  return "?";
}

void resolve_one(const Asked& asked) {
  static char untouched;
  void* p = &untouched;
  int result = -7;
  const int code = cuGetProcAddress_v2(asked.name, &p, asked.version, 0, &result);
  const bool found = p != nullptr && p != &untouched;
  const std::string variant = found ? variant_of(asked.name, p) : "?";
  const std::string sym = !found ? "-" : asked.name + (variant == "base" ? std::string() : variant);
  std::printf("  %-29s @%-6d rc=%d status=%d p=%s same-as=%s sym=%s\n", asked.name, asked.version,
              code, result,
              found          ? "set"
              : p == nullptr ? "NULL"
                             : "untouched",
              variant.c_str(), sym.c_str());
}

CASE(resolve, Untouched) {
  constexpr Asked kAsked[] = {
      {"cuInit", 12000},
      {"cuNope", 12000},
      {"cuEventElapsedTime", 12000},
      {"cuEventElapsedTime", 12080},
      {"cuEventElapsedTime", 13000},
      {"cuEventElapsedTime_v2", 13000},
      {"cuEventElapsedTime", 1000},
      {"cuEventElapsedTime", 99000},
      {"cuCtxGetDevice", 12000},
      {"cuStreamGetCaptureInfo", 12000},
      {"cuStreamBeginCapture", 12000},
      {"cuGraphInstantiate", 11000},
      {"cuGraphInstantiate", 12000},
      {"cuGraphInstantiateWithParams", 12000},
      {"cuGraphExecUpdate", 12000},
      {"cuGraphGetEdges", 12000},
      {"cuGraphGetEdges", 13000},
      {"cuGraphKernelNodeGetParams", 12000},
      {"cuEventDestroy", 12000},
      {"cuStreamDestroy", 12000},
      {"cuMemAlloc", 12000},
      {"cuGetProcAddress", 12000},
      {"cuEventRecord", 12000},
      {"", 12000},
  };
  for (const Asked& asked : kAsked) resolve_one(asked);
  constexpr unsigned long long kPerThread = 2;
  void* p = nullptr;
  int result = -7;
  const int code = cuGetProcAddress_v2("cuEventRecord", &p, 12000, kPerThread, &result);
  std::printf("  per-thread flag cuEventRecord: rc=%d ptsz=%d\n", code,
              p != nullptr && p == symbol("cuEventRecord_ptsz"));
  cuGetProcAddress_v2("cuInit", nullptr, 12000, 0, &result);
}

CASE(gpa_null_status, Untouched) {
  void* p = nullptr;
  auto* const gpa = cuGetProcAddress_v2;
  P(gpa("cuInit", &p, 12000, 0, nullptr));
  P(gpa("cuNope", &p, 12000, 0, nullptr));
  std::printf("  p=%s\n", p == nullptr ? "NULL" : "set");
  P(gpa("cuEventElapsedTime", &p, 1000, 0, nullptr));
  std::printf("  p=%s\n", p == nullptr ? "NULL" : "set");
}

CASE(gpa_null_pfn, Untouched) {
  int result = 0;
  cuGetProcAddress_v2("cuInit", nullptr, 12000, 0, &result);
}

CASE(gpa_null_name, Untouched) {
  void* p = nullptr;
  int result = 0;
  cuGetProcAddress_v2(nullptr, &p, 12000, 0, &result);
}

CASE(before_init, Untouched) {
  P(cuDriverGetVersion(&v));
  std::printf("  version %d\n", v);
  P(cuDeviceGetCount(&v));
  P(cuCtxGetCurrent(&h));
  P(cuEventCreate(&h, 0));
  P(cuEventQuery(nullptr));
  P(cuStreamIsCapturing(nullptr, &v));
  P(cuGraphCreate(&h, 0));
  P(cuInit(1));
  P(cuInit(0));
  P(cuInit(0));
}

CASE(no_context, Untouched) {
  int d = 0;
  Q(cuInit(0));
  P(cuCtxGetCurrent(&h));
  P(cuCtxGetDevice(&v));
  P(cuEventCreate(&h, 0));
  P(cuStreamCreate(&h, 1));
  P(cuStreamIsCapturing(nullptr, &v));
  P(cuGraphCreate(&h, 0));
  P(cuCtxSynchronize());
  P(cuCtxPopCurrent_v2(&h));
  P(cuDeviceGetCount(&v));
  P(cuDeviceGet(&d, 99));
  P(cuDeviceGet(&d, -1));
}

}  // namespace

}  // namespace conformance
