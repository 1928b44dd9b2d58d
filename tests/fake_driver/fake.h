// The part of the CUDA driver's binary interface that the fake driver speaks.
//
// Nothing here comes from cuda.h, so the fake builds without a CUDA toolkit; abi_check.cpp compares
// every value with the real header where there is one. Handles are opaque 64-bit tokens passed
// where CUDA passes pointers. Plain data, no ownership, usable from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#define FAKECUDA_EXPORT extern "C" __attribute__((visibility("default")))

// X(our name, cuda.h's name after CUDA_ERROR_, value, description)
#define FAKECUDA_ERRORS(X)                                                                       \
  X(kInvalidValue, INVALID_VALUE, 1, "invalid argument")                                         \
  X(kOutOfMemory, OUT_OF_MEMORY, 2, "out of memory")                                             \
  X(kNotInitialized, NOT_INITIALIZED, 3, "initialization error")                                 \
  X(kDeinitialized, DEINITIALIZED, 4, "driver shutting down")                                    \
  X(kStubLibrary, STUB_LIBRARY, 34, "the library is a stub")                                     \
  X(kNoDevice, NO_DEVICE, 100, "no CUDA-capable device is detected")                             \
  X(kInvalidDevice, INVALID_DEVICE, 101, "invalid device ordinal")                               \
  X(kInvalidContext, INVALID_CONTEXT, 201, "invalid device context")                             \
  X(kEccUncorrectable, ECC_UNCORRECTABLE, 214, "uncorrectable ECC error encountered")            \
  X(kOperatingSystem, OPERATING_SYSTEM, 304, "OS call failed or is not supported")               \
  X(kInvalidHandle, INVALID_HANDLE, 400, "invalid resource handle")                              \
  X(kIllegalState, ILLEGAL_STATE, 401, "the operation cannot be performed in the present state") \
  X(kLossyQuery, LOSSY_QUERY, 402, "attempted introspection would be semantically lossy")        \
  X(kNotFound, NOT_FOUND, 500, "named symbol not found")                                         \
  X(kNotReady, NOT_READY, 600, "device not ready")                                               \
  X(kIllegalAddress, ILLEGAL_ADDRESS, 700, "an illegal memory access was encountered")           \
  X(kLaunchTimeout, LAUNCH_TIMEOUT, 702, "the launch timed out and was terminated")              \
  X(kContextIsDestroyed, CONTEXT_IS_DESTROYED, 709, "context is destroyed")                      \
  X(kAssert, ASSERT, 710, "device-side assert triggered")                                        \
  X(kHardwareStackError, HARDWARE_STACK_ERROR, 714, "hardware stack error")                      \
  X(kIllegalInstruction, ILLEGAL_INSTRUCTION, 715, "an illegal instruction was encountered")     \
  X(kMisalignedAddress, MISALIGNED_ADDRESS, 716, "misaligned address")                           \
  X(kLaunchFailed, LAUNCH_FAILED, 719, "unspecified launch failure")                             \
  X(kNotPermitted, NOT_PERMITTED, 800, "operation not permitted")                                \
  X(kNotSupported, NOT_SUPPORTED, 801, "operation not supported")                                \
  X(kSystemNotReady, SYSTEM_NOT_READY, 802, "system not yet initialized")                        \
  X(kSystemDriverMismatch, SYSTEM_DRIVER_MISMATCH, 803, "driver and display driver mismatch")    \
  X(kCaptureUnsupported, STREAM_CAPTURE_UNSUPPORTED, 900,                                        \
    "operation not permitted when stream is capturing")                                          \
  X(kCaptureInvalidated, STREAM_CAPTURE_INVALIDATED, 901,                                        \
    "operation failed due to a previous error during capture")                                   \
  X(kCaptureMerge, STREAM_CAPTURE_MERGE, 902,                                                    \
    "operation would result in a merge of separate capture sequences")                           \
  X(kCaptureUnmatched, STREAM_CAPTURE_UNMATCHED, 903,                                            \
    "capture was not ended in the same stream as it began")                                      \
  X(kCaptureUnjoined, STREAM_CAPTURE_UNJOINED, 904, "capturing stream has unjoined work")        \
  X(kCaptureIsolation, STREAM_CAPTURE_ISOLATION, 905,                                            \
    "dependency created on uncaptured work in another stream")                                   \
  X(kCaptureImplicit, STREAM_CAPTURE_IMPLICIT, 906,                                              \
    "operation would make the legacy stream depend on a capturing blocking stream")              \
  X(kCapturedEvent, CAPTURED_EVENT, 907,                                                         \
    "operation not permitted on an event last recorded in a capturing stream")                   \
  X(kCaptureWrongThread, STREAM_CAPTURE_WRONG_THREAD, 908,                                       \
    "attempt to terminate a thread-local capture sequence from another thread")                  \
  X(kTimeout, TIMEOUT, 909, "wait operation timed out")                                          \
  X(kGraphExecUpdateFailure, GRAPH_EXEC_UPDATE_FAILURE, 910,                                     \
    "the graph update was not performed because it included unsupported changes")                \
  X(kUnknown, UNKNOWN, 999, "unknown error")

namespace fakecuda {

enum Result : int {
  kSuccess = 0,
#define FAKECUDA_X(ours, theirs, value, text) ours = value,
  FAKECUDA_ERRORS(FAKECUDA_X)
#undef FAKECUDA_X
};

using Handle = std::uintptr_t;    // CUcontext, CUstream, CUevent, CUgraph, CUfunction and the like
using DevicePtr = std::uint64_t;  // CUdeviceptr
using Ns = std::int64_t;          // virtual nanoseconds

enum CaptureMode : int { kModeGlobal = 0, kModeThreadLocal = 1, kModeRelaxed = 2 };
enum CaptureStatus : int { kStatusNone = 0, kStatusActive = 1, kStatusInvalidated = 2 };
enum NodeType : int {
  kNodeKernel = 0,
  kNodeMemcpy = 1,
  kNodeMemset = 2,
  kNodeHost = 3,
  kNodeGraph = 4,
  kNodeWaitEvent = 6,
  kNodeEventRecord = 7,
  kNodeMemAlloc = 10,
  kNodeMemFree = 11,
  kNodeBatchMemOp = 12,
};
enum UpdateResult : int {
  kUpdateSuccess = 0,
  kUpdateTopologyChanged = 2,
  kUpdateNodeTypeChanged = 3,
  kUpdateParametersChanged = 5,
};
enum MemoryType : int { kMemoryHost = 1, kMemoryDevice = 2 };
enum QueryResult : int { kSymbolFound = 0, kSymbolNotFound = 1, kSymbolVersionTooOld = 2 };

constexpr Handle kLegacyStream = 1;
constexpr Handle kPerThreadStream = 2;
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDisableTiming = 2;
constexpr unsigned kEventInterprocess = 4;
constexpr unsigned kEventFlagsMask = 7;
constexpr unsigned kRecordExternal = 1;
constexpr unsigned kWaitExternal = 1;
constexpr unsigned kWaitValueGeq = 0;
constexpr unsigned kWaitValueEq = 1;
constexpr unsigned kWaitValueAnd = 2;
constexpr unsigned kWaitValueNor = 3;
constexpr unsigned long long kAutoFreeOnLaunch = 1;
constexpr unsigned long long kInstantiateFlagsMask = 15;
constexpr unsigned char kEdgeProgrammatic = 1;
constexpr unsigned char kPortProgrammatic = 1;

struct Uuid {
  unsigned char bytes[16];
};

// The structures below have the layouts of cuda.h's of the same meaning.
struct KernelParams {
  Handle func;
  unsigned grid[3];
  unsigned block[3];
  unsigned shared;
  void** arguments;
  void** extra;
  Handle kern;
  Handle context;
};

struct CopyEnd {
  std::size_t x, y, z, lod;
  MemoryType type;
  const void* host;
  DevicePtr device;
  void* array;
  void* reserved;
  std::size_t pitch, height;
};

struct CopyParams {
  CopyEnd source;
  CopyEnd target;
  std::size_t width, height, depth;
};

struct MemsetParams {
  DevicePtr target;
  std::size_t pitch;
  unsigned value;
  unsigned element_size;
  std::size_t width, height;
};

struct EdgeData {
  unsigned char from_port;
  unsigned char to_port;
  unsigned char type;
  unsigned char reserved[5];
};

struct UpdateInfo {
  UpdateResult result;
  Handle error_node;
  Handle error_from_node;
};

struct MemAllocParams {
  int allocation_type;
  int handle_types;
  int location_type;
  int location_id;
  void* security_attributes;
  std::size_t max_size;
  unsigned short usage;
  unsigned char reserved[54];
  const void* access;
  std::size_t access_count;
  std::size_t size;
  DevicePtr address;
};

struct LaunchAttribute {
  int id;
  char padding[4];
  int value[16];
};

struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared;
  Handle stream;
  const LaunchAttribute* attributes;
  unsigned attribute_count;
};

}  // namespace fakecuda
