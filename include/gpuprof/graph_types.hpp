/// @file
/// The enumerations and plain data of stream captures and CUDA graphs.
#pragma once

#include <cstdint>
#include <optional>

#include "gpuprof/version.hpp"

GPUPROF_BEGIN_NAMESPACE

/// Which calls, on which threads, break a capture. The values are the driver's.
enum class CaptureMode : std::uint8_t {
  kGlobal,       ///< unsafe calls of any thread
  kThreadLocal,  ///< those of the thread that captures
  kRelaxed,      ///< none; any thread may end the capture
};

/// Whether a stream is being captured. The values are the driver's.
enum class CaptureStatus : std::uint8_t {
  kNone,
  kActive,
  kInvalidated,  ///< broken; it must still be ended
};

/// What scopes inside a capture become.
enum class GraphTimers : std::uint8_t {
  kLast,     ///< event nodes that each replay overwrites, read with CapturedGraph::timings()
  kCollect,  ///< event nodes whose times every replay adds to the statistics
  kStrip,    ///< nothing
};

/// What a node of a graph does. The driver's numbers; newer drivers have more.
enum class NodeType : int {
  kKernel = 0,
  kMemcpy = 1,
  kMemset = 2,
  kHost = 3,
  kGraph = 4,
  kEmpty = 5,
  kEventWait = 6,
  kEventRecord = 7,
  kSemaphoreSignal = 8,
  kSemaphoreWait = 9,
  kMemAlloc = 10,
  kMemFree = 11,
  kBatchMemOp = 12,
  kConditional = 13,
};

/// Device memory that a graph takes, in bytes; empty where it was not measured.
struct GraphMemory {
  std::optional<std::uint64_t> instantiate;
  std::optional<std::uint64_t> upload;
};

GPUPROF_END_NAMESPACE
