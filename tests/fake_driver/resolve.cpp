// cuGetProcAddress: which entry a name and a version stand for.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "call.hpp"
#include "script.hpp"

using namespace fakecuda;

namespace {

// The first driver version that has this variant of the entry.
struct Entry {
  const char* name;
  int version;
  const char* symbol;
};

constexpr Entry kEntries[] = {
    {"cuInit", 2000, "cuInit"},
    {"cuDriverGetVersion", 2020, "cuDriverGetVersion"},
    {"cuGetErrorName", 6000, "cuGetErrorName"},
    {"cuGetErrorString", 6000, "cuGetErrorString"},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
    {"cuDeviceGet", 2000, "cuDeviceGet"},
    {"cuDeviceGetCount", 2000, "cuDeviceGetCount"},
    {"cuDeviceGetName", 2000, "cuDeviceGetName"},
    {"cuDeviceGetAttribute", 2000, "cuDeviceGetAttribute"},
    {"cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"},
    {"cuDeviceTotalMem", 3020, "cuDeviceTotalMem_v2"},
    {"cuDevicePrimaryCtxRetain", 7000, "cuDevicePrimaryCtxRetain"},
    {"cuDevicePrimaryCtxRelease", 11000, "cuDevicePrimaryCtxRelease_v2"},
    {"cuDevicePrimaryCtxGetState", 7000, "cuDevicePrimaryCtxGetState"},
    {"cuDevicePrimaryCtxReset", 11000, "cuDevicePrimaryCtxReset_v2"},
    {"cuCtxGetCurrent", 4000, "cuCtxGetCurrent"},
    {"cuCtxSetCurrent", 4000, "cuCtxSetCurrent"},
    {"cuCtxPushCurrent", 4000, "cuCtxPushCurrent_v2"},
    {"cuCtxPopCurrent", 4000, "cuCtxPopCurrent_v2"},
    {"cuCtxGetDevice", 2000, "cuCtxGetDevice"},
    {"cuCtxSynchronize", 2000, "cuCtxSynchronize"},
    {"cuCtxGetId", 12000, "cuCtxGetId"},
    {"cuCtxCreate", 3020, "cuCtxCreate_v2"},
    {"cuCtxDestroy", 4000, "cuCtxDestroy_v2"},
    {"cuStreamCreate", 2000, "cuStreamCreate"},
    {"cuStreamDestroy", 4000, "cuStreamDestroy_v2"},
    {"cuStreamQuery", 2000, "cuStreamQuery"},
    {"cuStreamSynchronize", 2000, "cuStreamSynchronize"},
    {"cuStreamWaitEvent", 3020, "cuStreamWaitEvent"},
    {"cuLaunchHostFunc", 10000, "cuLaunchHostFunc"},
    {"cuStreamGetCtx", 9020, "cuStreamGetCtx"},
    {"cuStreamGetId", 12000, "cuStreamGetId"},
    {"cuStreamIsCapturing", 10000, "cuStreamIsCapturing"},
    {"cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"},
    {"cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2"},
    {"cuStreamEndCapture", 10000, "cuStreamEndCapture"},
    {"cuThreadExchangeStreamCaptureMode", 10010, "cuThreadExchangeStreamCaptureMode"},
    {"cuEventCreate", 2000, "cuEventCreate"},
    {"cuEventDestroy", 4000, "cuEventDestroy_v2"},
    {"cuEventRecord", 2000, "cuEventRecord"},
    {"cuEventRecordWithFlags", 11010, "cuEventRecordWithFlags"},
    {"cuEventQuery", 2000, "cuEventQuery"},
    {"cuEventSynchronize", 2000, "cuEventSynchronize"},
    {"cuEventElapsedTime", 2000, "cuEventElapsedTime"},
    {"cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"},
    {"cuGraphCreate", 10000, "cuGraphCreate"},
    {"cuGraphDestroy", 10000, "cuGraphDestroy"},
    {"cuGraphInstantiateWithFlags", 11040, "cuGraphInstantiateWithFlags"},
    {"cuGraphExecDestroy", 10000, "cuGraphExecDestroy"},
    {"cuGraphLaunch", 10000, "cuGraphLaunch"},
    {"cuGraphUpload", 11010, "cuGraphUpload"},
    {"cuGraphAddChildGraphNode", 10000, "cuGraphAddChildGraphNode"},
    {"cuGraphAddMemcpyNode", 10000, "cuGraphAddMemcpyNode"},
    {"cuGraphAddDependencies", 10000, "cuGraphAddDependencies"},
    {"cuGraphMemcpyNodeSetParams", 10000, "cuGraphMemcpyNodeSetParams"},
    {"cuGraphExecMemcpyNodeSetParams", 10020, "cuGraphExecMemcpyNodeSetParams"},
    {"cuGraphNodeSetEnabled", 11060, "cuGraphNodeSetEnabled"},
    {"cuGraphExecUpdate", 12000, "cuGraphExecUpdate_v2"},
    {"cuGraphExecEventRecordNodeSetEvent", 11010, "cuGraphExecEventRecordNodeSetEvent"},
    {"cuGraphGetNodes", 10000, "cuGraphGetNodes"},
    {"cuGraphGetEdges", 10000, "cuGraphGetEdges"},
    {"cuGraphGetEdges", 12030, "cuGraphGetEdges_v2"},
    // Newer than the driver whose answers are recorded, so no entry points of their own.
    {"cuGraphNodeGetToolsId", 13010, "fakecuda_tell_node_id"},
    {"cuGraphExecGetId", 13010, "fakecuda_tell_exec_id"},
    {"cuGraphNodeGetType", 10000, "cuGraphNodeGetType"},
    {"cuGraphKernelNodeGetParams", 12000, "cuGraphKernelNodeGetParams_v2"},
    {"cuGraphMemcpyNodeGetParams", 10000, "cuGraphMemcpyNodeGetParams"},
    {"cuGraphMemsetNodeGetParams", 10000, "cuGraphMemsetNodeGetParams"},
    {"cuGraphEventRecordNodeGetEvent", 11010, "cuGraphEventRecordNodeGetEvent"},
    {"cuGraphChildGraphNodeGetGraph", 10000, "cuGraphChildGraphNodeGetGraph"},
    {"cuGraphMemAllocNodeGetParams", 11040, "cuGraphMemAllocNodeGetParams"},
    {"cuFuncGetName", 12030, "cuFuncGetName"},
    {"cuKernelGetName", 12030, "cuKernelGetName"},
    {"cuMemAlloc", 3020, "cuMemAlloc_v2"},
    {"cuMemFree", 3020, "cuMemFree_v2"},
    {"cuMemHostAlloc", 2020, "cuMemHostAlloc"},
    {"cuMemFreeHost", 2000, "cuMemFreeHost"},
    {"cuMemHostGetDevicePointer", 3020, "cuMemHostGetDevicePointer_v2"},
    {"cuMemAllocAsync", 11020, "cuMemAllocAsync"},
    {"cuMemFreeAsync", 11020, "cuMemFreeAsync"},
    {"cuMemsetD8Async", 3020, "cuMemsetD8Async"},
    {"cuMemsetD16Async", 3020, "cuMemsetD16Async"},
    {"cuMemsetD32Async", 3020, "cuMemsetD32Async"},
    {"cuMemcpyDtoHAsync", 3020, "cuMemcpyDtoHAsync_v2"},
    {"cuMemcpyHtoDAsync", 3020, "cuMemcpyHtoDAsync_v2"},
    {"cuMemcpyDtoDAsync", 3020, "cuMemcpyDtoDAsync_v2"},
    {"cuMemGetInfo", 3020, "cuMemGetInfo_v2"},
    {"cuStreamWaitValue32", 11070, "cuStreamWaitValue32_v2"},
    {"cuStreamWriteValue32", 11070, "cuStreamWriteValue32_v2"},
    {"cuStreamWriteValue64", 11070, "cuStreamWriteValue64_v2"},
    {"cuLogsCurrent", 12090, "cuLogsCurrent"},
    {"cuLogsDumpToMemory", 12090, "cuLogsDumpToMemory"},
};

const void* own_address() {
  static const char anchor = 0;
  return &anchor;
}

void* entry_point(const char* symbol) {
  static void* const self = [] {
    Dl_info info{};
    dladdr(own_address(), &info);
    return dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }();
  return dlsym(self, symbol);
}

// `missing` names a symbol, or all of a name whose symbols are all suffixed.
bool is_missing(const Config& config, const Entry& entry) {
  if (config.missing.count(entry.symbol) != 0) return true;
  const bool has_plain_symbol =
      std::any_of(std::begin(kEntries), std::end(kEntries),
                  [&](const Entry& other) { return std::strcmp(other.symbol, entry.name) == 0; });
  return !has_plain_symbol && config.missing.count(entry.name) != 0;
}

struct Lookup {
  QueryResult result;
  void* entry;
};

Lookup look_up(const Config& config, const char* name, int version) {
  const Entry* best = nullptr;
  bool known = false;
  for (const Entry& entry : kEntries) {
    if (std::strcmp(entry.name, name) != 0 || entry.version > config.driver_version) continue;
    known = true;
    if (entry.version <= version) best = &entry;
  }
  if (!known) return {kSymbolNotFound, nullptr};
  if (best == nullptr) return {kSymbolVersionTooOld, nullptr};
  if (is_missing(config, *best)) return {kSymbolNotFound, nullptr};
  return {kSymbolFound, entry_point(best->symbol)};
}

void check_arguments(const char* function, const char* name, void** out) {
  if (name == nullptr) misuse(function, "with a null name");
  if (out == nullptr) misuse(function, "with a null pointer for the entry");
}

}  // namespace

FAKECUDA_EXPORT Result cuGetProcAddress_v2(const char* name, void** out, int version,
                                           std::uint64_t /*flags*/, int* result) {
  return call({__func__, InChild::kWorks, false, false}, [&](const char* function) -> Result {
    check_arguments(function, name, out);
    if (version > state().config.driver_version) return kInvalidValue;
    const Lookup found = look_up(state().config, name, version);
    *out = found.entry;
    if (result != nullptr) *result = found.result;
    return kSuccess;
  });
}
