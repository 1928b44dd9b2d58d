// Every driver entry point that gpuprof calls, declared once.
//
// X(name, version) asks cuGetProcAddress for exactly that version; the entry has the type
// PFN_<name>_v<version>, so that newer headers and drivers never change the ABI. F(name, version,
// older) falls back on `older`, which has the same signature. S(name, version, older) makes two
// entries, name and name_v<older>, whose signatures differ. A new driver call is one new line here;
// a call on an event goes into the second list.
#pragma once

#define GPUPROF_DRIVER_ENTRY_POINTS(X, F, S)  \
  X(cuInit, 2000)                             \
  X(cuDriverGetVersion, 2020)                 \
  X(cuGetErrorName, 6000)                     \
  X(cuGetErrorString, 6000)                   \
  X(cuLogsCurrent, 12090)                     \
  X(cuLogsDumpToMemory, 12090)                \
  X(cuDeviceGet, 2000)                        \
  X(cuDeviceGetCount, 2000)                   \
  X(cuDeviceGetName, 2000)                    \
  X(cuDeviceGetAttribute, 2000)               \
  X(cuDeviceGetUuid, 11040)                   \
  X(cuDeviceTotalMem, 3020)                   \
  X(cuDevicePrimaryCtxGetState, 7000)         \
  X(cuDevicePrimaryCtxRetain, 7000)           \
  X(cuDevicePrimaryCtxRelease, 11000)         \
  X(cuCtxGetCurrent, 4000)                    \
  X(cuCtxSetCurrent, 4000)                    \
  X(cuCtxPushCurrent, 4000)                   \
  X(cuCtxPopCurrent, 4000)                    \
  X(cuCtxGetDevice, 2000)                     \
  X(cuCtxGetId, 12000)                        \
  X(cuCtxSynchronize, 2000)                   \
  X(cuStreamCreate, 2000)                     \
  X(cuStreamDestroy, 4000)                    \
  X(cuStreamGetCtx, 9020)                     \
  X(cuStreamGetId, 12000)                     \
  X(cuStreamIsCapturing, 10000)               \
  X(cuStreamWaitValue32, 11070)               \
  X(cuThreadExchangeStreamCaptureMode, 10010) \
  X(cuEventCreate, 2000)                      \
  X(cuMemAlloc, 3020)                         \
  X(cuMemFree, 3020)                          \
  X(cuMemsetD32Async, 3020)                   \
  X(cuMemHostAlloc, 2020)                     \
  X(cuMemFreeHost, 2000)                      \
  X(cuMemHostGetDevicePointer, 3020)          \
  X(cuMemGetInfo, 3020)                       \
  X(cuMemsetD8Async, 3020)                    \
  X(cuMemsetD16Async, 3020)                   \
  X(cuMemcpyDtoHAsync, 3020)                  \
  X(cuStreamWriteValue64, 11070)              \
  X(cuStreamSynchronize, 2000)                \
  X(cuStreamBeginCapture, 10010)              \
  X(cuStreamEndCapture, 10000)                \
  X(cuStreamGetCaptureInfo, 11030)            \
  X(cuGraphInstantiateWithFlags, 11040)       \
  X(cuGraphDestroy, 10000)                    \
  X(cuGraphExecDestroy, 10000)                \
  X(cuGraphLaunch, 10000)                     \
  X(cuGraphUpload, 11010)                     \
  X(cuGraphExecUpdate, 12000)                 \
  X(cuGraphAddMemcpyNode, 10000)              \
  X(cuGraphAddDependencies, 10000)            \
  X(cuGraphMemcpyNodeSetParams, 10000)        \
  X(cuGraphExecMemcpyNodeSetParams, 10020)    \
  X(cuGraphNodeSetEnabled, 11060)             \
  X(cuGraphGetNodes, 10000)                   \
  S(cuGraphGetEdges, 12030, 10000)            \
  X(cuGraphNodeGetType, 10000)                \
  X(cuGraphKernelNodeGetParams, 12000)        \
  X(cuGraphMemcpyNodeGetParams, 10000)        \
  X(cuGraphMemsetNodeGetParams, 10000)        \
  X(cuGraphEventRecordNodeGetEvent, 11010)    \
  X(cuGraphChildGraphNodeGetGraph, 10000)     \
  X(cuGraphMemAllocNodeGetParams, 11040)      \
  X(cuFuncGetName, 12030)                     \
  X(cuKernelGetName, 12030)

// Calls that are newer than the headers and that nothing depends on: drivers that lack them are not
// said to lack anything. The second argument of X is the version.
#define GPUPROF_OPTIONAL_ENTRY_POINTS(X) \
  X(cuGraphNodeGetToolsId, 13010)        \
  X(cuGraphExecGetId, 13010)

// Calls on events, which only driver::EventAccess makes.
#define GPUPROF_EVENT_ENTRY_POINTS(X, F) \
  X(cuEventDestroy, 4000)                \
  X(cuEventRecord, 2000)                 \
  X(cuEventRecordWithFlags, 11010)       \
  X(cuEventQuery, 2000)                  \
  F(cuEventElapsedTime, 12080, 2000)     \
  X(cuStreamWaitEvent, 3020)             \
  X(cuGraphExecEventRecordNodeSetEvent, 11010)
