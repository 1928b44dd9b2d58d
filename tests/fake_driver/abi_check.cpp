// Compares fake.h with the real cuda.h at compile time. Built only where that header is found; the
// object file is empty.
#include <cuda.h>

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
FAKECUDA_SAME(kNodeMemset, CU_GRAPH_NODE_TYPE_MEMSET);
FAKECUDA_SAME(kNodeWaitEvent, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
FAKECUDA_SAME(kNodeEventRecord, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
FAKECUDA_SAME(kNodeBatchMemOp, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
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
