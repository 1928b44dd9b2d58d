// Compares fake.h with the real cuda.h at compile time. Built only where that header is found; the
// object file is empty.
#include <cuda.h>

#include <cstddef>

#include "fake.h"

#define FAKECUDA_X(ours, theirs, value, text) \
  static_assert(static_cast<int>(fakecuda::ours) == static_cast<int>(CUDA_ERROR_##theirs), #theirs);
FAKECUDA_ERRORS(FAKECUDA_X)
#undef FAKECUDA_X

#define FAKECUDA_SAME(ours, theirs) \
  static_assert(static_cast<long long>(fakecuda::ours) == static_cast<long long>(theirs), #ours)

FAKECUDA_SAME(kSuccess, CUDA_SUCCESS);
FAKECUDA_SAME(kModeGlobal, CU_STREAM_CAPTURE_MODE_GLOBAL);
FAKECUDA_SAME(kModeThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
FAKECUDA_SAME(kModeRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
FAKECUDA_SAME(kStatusNone, CU_STREAM_CAPTURE_STATUS_NONE);
FAKECUDA_SAME(kStatusActive, CU_STREAM_CAPTURE_STATUS_ACTIVE);
FAKECUDA_SAME(kStatusInvalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
FAKECUDA_SAME(kNodeKernel, CU_GRAPH_NODE_TYPE_KERNEL);
FAKECUDA_SAME(kNodeMemcpy, CU_GRAPH_NODE_TYPE_MEMCPY);
FAKECUDA_SAME(kNodeMemset, CU_GRAPH_NODE_TYPE_MEMSET);
FAKECUDA_SAME(kNodeHost, CU_GRAPH_NODE_TYPE_HOST);
FAKECUDA_SAME(kNodeGraph, CU_GRAPH_NODE_TYPE_GRAPH);
FAKECUDA_SAME(kNodeWaitEvent, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
FAKECUDA_SAME(kNodeEventRecord, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
FAKECUDA_SAME(kNodeMemAlloc, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
FAKECUDA_SAME(kNodeMemFree, CU_GRAPH_NODE_TYPE_MEM_FREE);
FAKECUDA_SAME(kNodeBatchMemOp, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
FAKECUDA_SAME(kUpdateSuccess, CU_GRAPH_EXEC_UPDATE_SUCCESS);
FAKECUDA_SAME(kUpdateTopologyChanged, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
FAKECUDA_SAME(kUpdateNodeTypeChanged, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
FAKECUDA_SAME(kUpdateParametersChanged, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
FAKECUDA_SAME(kMemoryHost, CU_MEMORYTYPE_HOST);
FAKECUDA_SAME(kMemoryDevice, CU_MEMORYTYPE_DEVICE);
FAKECUDA_SAME(kAutoFreeOnLaunch, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
FAKECUDA_SAME(kEdgeProgrammatic, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
FAKECUDA_SAME(kPortProgrammatic, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
FAKECUDA_SAME(kSymbolFound, CU_GET_PROC_ADDRESS_SUCCESS);
FAKECUDA_SAME(kSymbolNotFound, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
FAKECUDA_SAME(kSymbolVersionTooOld, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
FAKECUDA_SAME(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
FAKECUDA_SAME(kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
FAKECUDA_SAME(kEventInterprocess, CU_EVENT_INTERPROCESS);
FAKECUDA_SAME(kRecordExternal, CU_EVENT_RECORD_EXTERNAL);
FAKECUDA_SAME(kWaitExternal, CU_EVENT_WAIT_EXTERNAL);
FAKECUDA_SAME(kWaitValueGeq, CU_STREAM_WAIT_VALUE_GEQ);
FAKECUDA_SAME(kWaitValueEq, CU_STREAM_WAIT_VALUE_EQ);
FAKECUDA_SAME(kWaitValueAnd, CU_STREAM_WAIT_VALUE_AND);
FAKECUDA_SAME(kWaitValueNor, CU_STREAM_WAIT_VALUE_NOR);

static_assert(sizeof(fakecuda::Result) == sizeof(CUresult), "CUresult");
static_assert(sizeof(fakecuda::Handle) == sizeof(CUstream), "CUstream");
static_assert(sizeof(fakecuda::Handle) == sizeof(CUevent), "CUevent");
static_assert(sizeof(fakecuda::DevicePtr) == sizeof(CUdeviceptr), "CUdeviceptr");
static_assert(sizeof(fakecuda::CaptureMode) == sizeof(CUstreamCaptureMode), "CUstreamCaptureMode");
static_assert(sizeof(fakecuda::Uuid) == sizeof(CUuuid), "CUuuid");

#define FAKECUDA_SAME_PLACE(ours, member, theirs, their_member)                     \
  static_assert(offsetof(fakecuda::ours, member) == offsetof(theirs, their_member), \
                #ours "." #member)
static_assert(sizeof(fakecuda::KernelParams) == sizeof(CUDA_KERNEL_NODE_PARAMS_v2), "kernel v2");
FAKECUDA_SAME_PLACE(KernelParams, block, CUDA_KERNEL_NODE_PARAMS_v2, blockDimX);
FAKECUDA_SAME_PLACE(KernelParams, shared, CUDA_KERNEL_NODE_PARAMS_v2, sharedMemBytes);
FAKECUDA_SAME_PLACE(KernelParams, kern, CUDA_KERNEL_NODE_PARAMS_v2, kern);
static_assert(sizeof(fakecuda::CopyParams) == sizeof(CUDA_MEMCPY3D), "copy");
FAKECUDA_SAME_PLACE(CopyParams, source.device, CUDA_MEMCPY3D, srcDevice);
FAKECUDA_SAME_PLACE(CopyParams, target.type, CUDA_MEMCPY3D, dstMemoryType);
FAKECUDA_SAME_PLACE(CopyParams, target.host, CUDA_MEMCPY3D, dstHost);
FAKECUDA_SAME_PLACE(CopyParams, width, CUDA_MEMCPY3D, WidthInBytes);
static_assert(sizeof(fakecuda::MemsetParams) == sizeof(CUDA_MEMSET_NODE_PARAMS), "memset");
FAKECUDA_SAME_PLACE(MemsetParams, element_size, CUDA_MEMSET_NODE_PARAMS, elementSize);
FAKECUDA_SAME_PLACE(MemsetParams, width, CUDA_MEMSET_NODE_PARAMS, width);
static_assert(sizeof(fakecuda::EdgeData) == sizeof(CUgraphEdgeData), "edge");
FAKECUDA_SAME_PLACE(EdgeData, type, CUgraphEdgeData, type);
static_assert(sizeof(fakecuda::UpdateInfo) == sizeof(CUgraphExecUpdateResultInfo), "update");
FAKECUDA_SAME_PLACE(UpdateInfo, error_node, CUgraphExecUpdateResultInfo, errorNode);
static_assert(sizeof(fakecuda::MemAllocParams) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS), "alloc");
FAKECUDA_SAME_PLACE(MemAllocParams, size, CUDA_MEM_ALLOC_NODE_PARAMS, bytesize);
FAKECUDA_SAME_PLACE(MemAllocParams, address, CUDA_MEM_ALLOC_NODE_PARAMS, dptr);
static_assert(sizeof(fakecuda::LaunchAttribute) == sizeof(CUlaunchAttribute), "attribute");
FAKECUDA_SAME_PLACE(LaunchAttribute, value, CUlaunchAttribute, value);
static_assert(sizeof(fakecuda::LaunchConfig) == sizeof(CUlaunchConfig), "launch");
FAKECUDA_SAME_PLACE(LaunchConfig, attributes, CUlaunchConfig, attrs);
