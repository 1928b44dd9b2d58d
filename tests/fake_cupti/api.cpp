// CUPTI's functions, as far as gpuprof calls them. gpuprof must never call cuptiSubscribe.
#include <cstdlib>

#include "world.hpp"

using namespace fakecupti;

namespace {

// Counts a call and returns what it is to answer: a fault that a test has set, else success.
Result enter(const char* name) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  ++w.calls[name];
  const auto fault = w.faults.find(name);
  if (fault == w.faults.end()) return kSuccess;
  if (fault->second.calls_before > 0) {
    --fault->second.calls_before;
    return kSuccess;
  }
  return fault->second.code;
}

// A few of CUDA's functions, by CUPTI's numbers of them.
const char* callback_name(int domain, std::uint32_t id) {
  static const std::map<std::pair<int, std::uint32_t>, const char*>& names =
      *new std::map<std::pair<int, std::uint32_t>, const char*>{
          {{1, 3}, "cuDeviceGet"},
          {{1, 307}, "cuLaunchKernel"},
          {{1, 397}, "cuMemcpyHtoD_v2_ptds"},
          {{1, 514}, "cuGraphLaunch"},
          {{1, 527}, "cuLaunchHostFunc"},
          {{2, 20}, "cudaMalloc_v3020"},
          {{2, 211}, "cudaLaunchKernel_v7000"},
          {{2, 41}, "cudaMemcpyAsync_v3020"},
          {{2, 51}, "cudaMemsetAsync_v3020"},
          {{2, 214}, "cudaLaunchKernel_ptsz_v7000"},
          {{2, 288}, "cudaGraphKernelNodeSetParams_v10000"},
          {{2, 311}, "cudaGraphLaunch_v10000"},
          {{2, 505}, "__cudaLaunchKernel_v13000"},
      };
  const auto found = names.find({domain, id});
  return found != names.end() ? found->second : nullptr;
}

}  // namespace

#define ENTER(name)                                           \
  if (const Result fault = enter(#name); fault != kSuccess) { \
    return fault;                                             \
  }

FAKE_EXPORT Result cuptiGetVersion(std::uint32_t* version) {
  ENTER(cuptiGetVersion)
  const char* wanted = std::getenv("FAKECUPTI_VERSION");
  *version =
      wanted != nullptr ? static_cast<std::uint32_t>(std::strtoul(wanted, nullptr, 10)) : 130001;
  return kSuccess;
}

FAKE_EXPORT Result cuptiGetResultString(Result result, const char** text) {
  switch (result) {
    case 15:
      *text = "CUPTI_ERROR_NOT_INITIALIZED";
      return kSuccess;
    case 35:
      *text = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES";
      return kSuccess;
    case 39:
      *text = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";
      return kSuccess;
    case 999:
      *text = "CUPTI_ERROR_UNKNOWN";
      return kSuccess;
    default:
      return kInvalidParameter;
  }
}

FAKE_EXPORT Result cuptiGetTimestamp(std::uint64_t* now) {
  ENTER(cuptiGetTimestamp)
  *now = clock_now();
  return kSuccess;
}

FAKE_EXPORT Result cuptiGetCallbackName(int domain, std::uint32_t id, const char** name) {
  ENTER(cuptiGetCallbackName)
  *name = callback_name(domain, id);
  return *name != nullptr ? kSuccess : kInvalidParameter;
}

FAKE_EXPORT Result cuptiGetThreadIdType(int* type) {
  ENTER(cuptiGetThreadIdType)
  *type = world().thread_ids;
  return kSuccess;
}

FAKE_EXPORT Result cuptiSetThreadIdType(int type) {
  ENTER(cuptiSetThreadIdType)
  world().thread_ids = type;
  return kSuccess;
}

FAKE_EXPORT Result cuptiActivityEnable(int kind) {
  ENTER(cuptiActivityEnable)
  World& w = world();
  const std::lock_guard lock(w.mutex);
  w.kinds.insert(kind);
  return kSuccess;
}

FAKE_EXPORT Result cuptiActivityDisable(int kind) {
  ENTER(cuptiActivityDisable)
  World& w = world();
  const std::lock_guard lock(w.mutex);
  w.kinds.erase(kind);
  return kSuccess;
}

FAKE_EXPORT Result cuptiActivityRegisterCallbacks(Requested requested, Completed completed) {
  ENTER(cuptiActivityRegisterCallbacks)
  World& w = world();
  const std::lock_guard lock(w.mutex);
  w.requested = requested;
  w.completed = completed;
  return kSuccess;
}

FAKE_EXPORT Result cuptiActivityFlushAll(std::uint32_t flag) {
  ENTER(cuptiActivityFlushAll)
  if (world().completed == nullptr) return kInvalidOperation;
  flush(flag != 0);
  return kSuccess;
}

FAKE_EXPORT Result cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t /*valid*/,
                                              void** record) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  const std::vector<std::size_t>& starts = w.starts[buffer];
  // Records are asked for in turn, by one thread.
  static thread_local std::size_t next = 0;
  next = *record == nullptr ? 0 : next + 1;
  if (next >= starts.size()) return kMaxLimitReached;
  *record = buffer + starts[next];
  return kSuccess;
}

FAKE_EXPORT Result cuptiActivityGetNumDroppedRecords(void* /*context*/, std::uint32_t /*stream*/,
                                                     std::size_t* dropped) {
  ENTER(cuptiActivityGetNumDroppedRecords)
  World& w = world();
  const std::lock_guard lock(w.mutex);
  *dropped = std::exchange(w.dropped, 0);
  return kSuccess;
}

#ifndef FAKECUPTI_WITHOUT_NODE_IDS
FAKE_EXPORT Result cuptiGetGraphNodeId(void* node, std::uint64_t* id) {
  ENTER(cuptiGetGraphNodeId)
  if (node == nullptr) return kInvalidParameter;
  *id = reinterpret_cast<std::uintptr_t>(node) + 7;
  return kSuccess;
}
#endif

// There may be one subscriber in a process; gpuprof is never it.
FAKE_EXPORT Result cuptiSubscribe(void** /*subscriber*/, void* /*callback*/, void* /*data*/) {
  ENTER(cuptiSubscribe)
  return kSuccess;
}

#ifdef FAKECUPTI_WITH_QUESTIONS
FAKE_EXPORT Result cuptiActivityGetEnabledKinds(void* /*subscriber*/, int* /*kinds*/,
                                                std::uint32_t* /*room*/, std::uint32_t* count) {
  ENTER(cuptiActivityGetEnabledKinds)
  World& w = world();
  const std::lock_guard lock(w.mutex);
  *count = static_cast<std::uint32_t>(w.kinds.size());
  return kSuccess;
}

FAKE_EXPORT Result cuptiActivityGetStructSize(int /*kind*/, std::uint32_t /*version*/,
                                              std::size_t* bytes) {
  ENTER(cuptiActivityGetStructSize)
  *bytes = world().struct_bytes != 0 ? world().struct_bytes : 248;
  return kSuccess;
}
#endif
