// The driver under test, its entry points by name, and the words in which a case reports.
//
// Entry points are variables with the driver's own names, so that a printed row shows the call as
// it is written. None of this needs CUDA's headers. A case runs alone in a forked process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "../fake_driver/fake.h"

namespace conformance {

using H = void*;  // any opaque handle
using Ptr = unsigned long long;

// The structures have the layouts of cuda.h's, which the fake driver's build checks.
using Edge = fakecuda::EdgeData;
using CopyNode = fakecuda::CopyParams;
using MemsetNode = fakecuda::MemsetParams;
using AllocNode = fakecuda::MemAllocParams;
using LaunchAttribute = fakecuda::LaunchAttribute;
using Launch = fakecuda::LaunchConfig;
struct KernelNode {
  H func;
  unsigned grid[3], block[3], shared;
  void **arguments, **extra;
  H kern, context;
};
struct Update {
  int result = -1;
  H error_node = nullptr, error_from_node = nullptr;
};

// X(name, parameters); every entry is looked up by exactly this symbol and may be missing.
#define CONFORMANCE_ENTRY_POINTS(X)                                                         \
  X(cuInit, (unsigned))                                                                     \
  X(cuDriverGetVersion, (int*))                                                             \
  X(cuGetErrorName, (int, const char**))                                                    \
  X(cuGetProcAddress_v2, (const char*, void**, int, unsigned long long, int*))              \
  X(cuDeviceGet, (int*, int))                                                               \
  X(cuDeviceGetCount, (int*))                                                               \
  X(cuDevicePrimaryCtxRetain, (H*, int))                                                    \
  X(cuDevicePrimaryCtxRelease_v2, (int))                                                    \
  X(cuDevicePrimaryCtxReset_v2, (int))                                                      \
  X(cuDevicePrimaryCtxGetState, (int, unsigned*, int*))                                     \
  X(cuCtxGetCurrent, (H*))                                                                  \
  X(cuCtxSetCurrent, (H))                                                                   \
  X(cuCtxPushCurrent_v2, (H))                                                               \
  X(cuCtxPopCurrent_v2, (H*))                                                               \
  X(cuCtxGetDevice, (int*))                                                                 \
  X(cuCtxGetId, (H, unsigned long long*))                                                   \
  X(cuCtxSynchronize, ())                                                                   \
  X(cuCtxCreate_v2, (H*, unsigned, int))                                                    \
  X(cuCtxDestroy_v2, (H))                                                                   \
  X(cuStreamCreate, (H*, unsigned))                                                         \
  X(cuStreamDestroy_v2, (H))                                                                \
  X(cuStreamQuery, (H))                                                                     \
  X(cuStreamSynchronize, (H))                                                               \
  X(cuStreamWaitEvent, (H, H, unsigned))                                                    \
  X(cuStreamGetCtx, (H, H*))                                                                \
  X(cuStreamGetId, (H, unsigned long long*))                                                \
  X(cuLaunchHostFunc, (H, void (*)(void*), void*))                                          \
  X(cuStreamIsCapturing, (H, int*))                                                         \
  X(cuStreamGetCaptureInfo_v2, (H, int*, unsigned long long*, H*, const H**, std::size_t*)) \
  X(cuStreamBeginCapture_v2, (H, int))                                                      \
  X(cuStreamEndCapture, (H, H*))                                                            \
  X(cuThreadExchangeStreamCaptureMode, (int*))                                              \
  X(cuEventCreate, (H*, unsigned))                                                          \
  X(cuEventDestroy_v2, (H))                                                                 \
  X(cuEventRecord, (H, H))                                                                  \
  X(cuEventRecordWithFlags, (H, H, unsigned))                                               \
  X(cuEventQuery, (H))                                                                      \
  X(cuEventSynchronize, (H))                                                                \
  X(cuEventElapsedTime, (float*, H, H))                                                     \
  X(cuEventElapsedTime_v2, (float*, H, H))                                                  \
  X(cuGraphCreate, (H*, unsigned))                                                          \
  X(cuGraphDestroy, (H))                                                                    \
  X(cuGraphInstantiateWithFlags, (H*, H, unsigned long long))                               \
  X(cuGraphExecDestroy, (H))                                                                \
  X(cuGraphLaunch, (H, H))                                                                  \
  X(cuGraphUpload, (H, H))                                                                  \
  X(cuGraphGetNodes, (H, H*, std::size_t*))                                                 \
  X(cuGraphNodeGetType, (H, int*))                                                          \
  X(cuMemAlloc_v2, (Ptr*, std::size_t))                                                     \
  X(cuMemFree_v2, (Ptr))                                                                    \
  X(cuMemHostAlloc, (void**, std::size_t, unsigned))                                        \
  X(cuMemFreeHost, (void*))                                                                 \
  X(cuMemHostGetDevicePointer_v2, (Ptr*, void*, unsigned))                                  \
  X(cuMemsetD32Async, (Ptr, unsigned, std::size_t, H))                                      \
  X(cuMemGetInfo_v2, (std::size_t*, std::size_t*))                                          \
  X(cuGraphAddChildGraphNode, (H*, H, const H*, std::size_t, H))                            \
  X(cuGraphAddMemcpyNode, (H*, H, const H*, std::size_t, const CopyNode*, H))               \
  X(cuGraphAddDependencies, (H, const H*, const H*, std::size_t))                           \
  X(cuGraphMemcpyNodeSetParams, (H, const CopyNode*))                                       \
  X(cuGraphExecMemcpyNodeSetParams, (H, H, const CopyNode*, H))                             \
  X(cuGraphNodeSetEnabled, (H, H, unsigned))                                                \
  X(cuGraphGetEdges, (H, H*, H*, std::size_t*))                                             \
  X(cuGraphGetEdges_v2, (H, H*, H*, Edge*, std::size_t*))                                   \
  X(cuGraphKernelNodeGetParams_v2, (H, KernelNode*))                                        \
  X(cuGraphMemcpyNodeGetParams, (H, CopyNode*))                                             \
  X(cuGraphMemsetNodeGetParams, (H, MemsetNode*))                                           \
  X(cuGraphEventRecordNodeGetEvent, (H, H*))                                                \
  X(cuGraphChildGraphNodeGetGraph, (H, H*))                                                 \
  X(cuGraphMemAllocNodeGetParams, (H, AllocNode*))                                          \
  X(cuFuncGetName, (const char**, H))                                                       \
  X(cuKernelGetName, (const char**, H))                                                     \
  X(cuGraphExecUpdate_v2, (H, H, Update*))                                                  \
  X(cuGraphExecEventRecordNodeSetEvent, (H, H, H))                                          \
  X(cuMemAllocAsync, (Ptr*, std::size_t, H))                                                \
  X(cuMemFreeAsync, (Ptr, H))                                                               \
  X(cuMemsetD8Async, (Ptr, unsigned char, std::size_t, H))                                  \
  X(cuMemsetD16Async, (Ptr, unsigned short, std::size_t, H))                                \
  X(cuMemcpyDtoHAsync_v2, (void*, Ptr, std::size_t, H))                                     \
  X(cuMemcpyHtoDAsync_v2, (Ptr, const void*, std::size_t, H))                               \
  X(cuMemcpyDtoDAsync_v2, (Ptr, Ptr, std::size_t, H))                                       \
  X(cuStreamWriteValue64_v2, (H, Ptr, std::uint64_t, unsigned))                             \
  X(cuStreamWaitValue32_v2, (H, Ptr, std::uint32_t, unsigned))                              \
  X(cuStreamWriteValue32_v2, (H, Ptr, std::uint32_t, unsigned))                             \
  X(cuGetErrorString, (int, const char**))                                                  \
  X(cuDeviceGetName, (char*, int, int))                                                     \
  X(cuDeviceGetAttribute, (int*, int, int))                                                 \
  X(cuDeviceGetUuid_v2, (void*, int))                                                       \
  X(cuDeviceTotalMem_v2, (std::size_t*, int))                                               \
  X(cuLogsCurrent, (unsigned*, unsigned))                                                   \
  X(cuLogsDumpToMemory, (unsigned*, char*, std::size_t*, unsigned))                         \
  X(cuModuleLoadData, (H*, const void*))                                                    \
  X(cuModuleGetFunction, (H*, H, const char*))                                              \
  X(cuLibraryLoadData, (H*, const void*, void*, void*, unsigned, void*, void*, unsigned))   \
  X(cuLibraryGetKernel, (H*, H, const char*))                                               \
  X(cuLaunchKernelEx, (const Launch*, H, void**, void**))                                   \
  X(cuLaunchKernel,                                                                         \
    (H, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, H, void**, void**))

#define CONFORMANCE_X(name, parameters) extern int(*name) parameters;
CONFORMANCE_ENTRY_POINTS(CONFORMANCE_X)
#undef CONFORMANCE_X

// Opens the library and looks up every entry; ends the program where it cannot.
void open_driver(const char* path);
void* symbol(const char* name);  // null if the driver does not export it

// "600 ERROR_NOT_READY", in a buffer of the calling thread; "?" where the driver has no name.
const char* named(int code);

// Prints one row: the call as written, its answer.
int row(const char* call, int code);
#define P(...) ::conformance::row(#__VA_ARGS__, (__VA_ARGS__))

// For what a case needs but does not report; any failure ends the case with a row that says so.
void must(const char* call, int code);
#define Q(...) ::conformance::must(#__VA_ARGS__, (__VA_ARGS__))

// Kernels: embedded PTX on a real driver, the fake's own work on the fake.
extern H mod;
extern const char* const PTX;
bool is_fake();                             // it brings kernels of its own and loads no module
void load_kernels();                        // prints the row of the module where there is one
int spin(H stream, unsigned microseconds);  // a kernel that runs that long
int boom(H stream);                         // a kernel that traps
// `spin` for 10 us, launched like that; the node of the second form is of a library's kernel, that
// of the third may start early.
struct Shape {
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared = 0;
};
int spin_shaped(H stream, const Shape& shape);
int spin_of_library(H stream);
int spin_early(H stream);

// Rows that the recorded files have in a form of their own.
int status(H stream);  // status(stream) rc=... state=...
H end(H stream);       // cuStreamEndCapture -> ... graph=set|NULL
void nodes(H graph);   // nodes=1 types: 0
std::vector<H> nodes_of(H graph);
void result_of(const Update& update, H graph);  // result=2 node=1 from=NULL

void nap();  // 1 ms of real time, for a device to catch up where a row wants it idle

struct Case {
  const char* name;
  void (*run)();
};
std::vector<Case>& all_cases();

struct Listed {
  Listed(const char* name, void (*run)()) { all_cases().push_back({name, run}); }
};

// CASE(name, World) { calls }: the calls use the names of the world's members, which the rows show;
// some recorded rows name the world too, as w.
#define CASE(name, World)                 \
  struct name : World {                   \
    name& w = *this;                      \
    void calls();                         \
  };                                      \
  const Listed name##_listed(#name, [] {  \
    name world;                           \
    world.around([&] { world.calls(); }); \
  });                                     \
  void name::calls()

// A world before CUDA is initialised: only what calls fill in.
struct Untouched {
  template <typename Calls>
  static void around(Calls calls) {
    calls();
  }
  H h = nullptr, g = nullptr, x = nullptr, y = nullptr, c = nullptr;
  Ptr d = 0;
  float ms = -1;
  int m = 2, v = 0;
  std::size_t n = 0;
  unsigned long long id = 0;
};

}  // namespace conformance
