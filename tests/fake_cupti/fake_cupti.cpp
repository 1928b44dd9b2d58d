// A CUPTI for tests: activity buffers, records and switches, without a GPU.
//
// It has the functions that gpuprof uses, with CUPTI's rules as far as gpuprof relies on them: one
// pair of buffer callbacks, the last one registered; records only of what is enabled; a buffer is
// given back when it is full or flushed, and dropped records are counted where none was given.
// Tests say what ran with fakecupti_*, which count as no call of CUPTI. Guarded by one lock, which
// is free while a callback runs.
#include <time.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using Result = int;
using Requested = void (*)(std::uint8_t**, std::size_t*, std::size_t*);
using Completed = void (*)(void*, std::uint32_t, std::uint8_t*, std::size_t, std::size_t);

constexpr Result kSuccess = 0;
constexpr Result kInvalidParameter = 1;
constexpr Result kInvalidOperation = 7;
constexpr Result kMaxLimitReached = 12;
constexpr int kMemcpy = 1;
constexpr int kMemset = 2;
constexpr int kDriver = 4;
constexpr int kRuntime = 5;
constexpr int kKernel = 10;
constexpr int kPeerCopy = 22;

// What lies in a buffer: where each record begins. The real CUPTI knows it by the records' sizes.
struct Buffer {
  std::uint8_t* address = nullptr;
  std::size_t bytes = 0;
  std::size_t used = 0;
  std::vector<std::size_t> starts;
};

struct Fault {
  Result code = kSuccess;
  int calls_before = 0;
};

struct World {
  std::mutex mutex;
  std::uint32_t version = 130001;
  std::set<int> kinds;
  std::set<std::pair<int, std::uint32_t>> functions;
  Requested requested = nullptr;
  Completed completed = nullptr;
  Buffer active;
  std::map<std::uint8_t*, std::vector<std::size_t>> starts;  // of buffers given back
  std::size_t dropped = 0;
  std::map<std::string, std::uint64_t> calls;
  std::map<std::string, Fault> faults;
  int thread_ids = 0;
  double rate = 1.0;  // of the clock, against CLOCK_REALTIME
  std::int64_t offset = 0;
  bool on_own_thread = false;
  bool keeps = false;  // full buffers until a flush, as while kernels in them still run
  bool stuck = false;  // a flush gives nothing back
  int running = 0;     // how many flushes find kernels that still run; a forced one does not care
  std::vector<Buffer> kept;
  std::size_t extra = 0;  // bytes behind the fields of each record, as later versions have them
  std::size_t struct_bytes = 0;
  std::uint64_t other_records = 0;  // that the other tool's callback got
  std::uint64_t other_buffers = 0;
  std::set<std::uint8_t*> others;  // lent by the other tool
};

World& world() {
  static World& storage = *new World;
  return storage;
}

std::uint32_t version_wanted() {
  const char* text = std::getenv("FAKECUPTI_VERSION");
  return text != nullptr ? static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10)) : 0;
}

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

std::uint64_t clock_now() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  World& w = world();
  const auto ns = static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  if (w.rate == 1.0) return static_cast<std::uint64_t>(ns + w.offset);
  // As a counter of ticks, which starts somewhere else.
  return static_cast<std::uint64_t>(static_cast<double>(ns % 1'000'000'000'000'000) * w.rate) +
         static_cast<std::uint64_t>(w.offset);
}

void give_back(const Buffer& buffer) {
  World& w = world();
  Completed completed = nullptr;
  {
    const std::lock_guard lock(w.mutex);
    completed = w.completed;
    if (buffer.address != nullptr) w.starts[buffer.address] = buffer.starts;
  }
  if (buffer.address == nullptr) return;
  const auto call = [&] { completed(nullptr, 0, buffer.address, buffer.bytes, buffer.used); };
  if (w.on_own_thread) {
    std::thread(call).join();
  } else {
    call();
  }
}

void give_back_active() {
  Buffer buffer;
  {
    const std::lock_guard lock(world().mutex);
    std::swap(buffer, world().active);
  }
  give_back(buffer);
}

void flush(bool forced) {
  World& w = world();
  if (w.stuck) return;
  if (!forced && w.running > 0) {
    --w.running;
    return;
  }
  std::vector<Buffer> kept;
  {
    const std::lock_guard lock(w.mutex);
    kept.swap(w.kept);
  }
  for (const Buffer& buffer : kept) give_back(buffer);
  give_back_active();
}

// The active buffer is full.
void turn_over() {
  World& w = world();
  if (!w.keeps) return give_back_active();
  const std::lock_guard lock(w.mutex);
  w.kept.push_back(std::exchange(w.active, Buffer()));
}

// Puts a record into the active buffer, or drops it.
void put(const void* record, std::size_t bytes, std::size_t step) {
  World& w = world();
  if (w.active.address != nullptr && w.active.used + step > w.active.bytes) turn_over();
  if (w.active.address == nullptr) {
    Requested requested = nullptr;
    {
      const std::lock_guard lock(w.mutex);
      requested = w.requested;
    }
    std::size_t most = 0;
    Buffer fresh;
    if (requested != nullptr) requested(&fresh.address, &fresh.bytes, &most);
    const std::lock_guard lock(w.mutex);
    if (fresh.address == nullptr || fresh.bytes < step) {
      ++w.dropped;
      return;
    }
    w.active = fresh;
  }
  const std::lock_guard lock(w.mutex);
  w.active.starts.push_back(w.active.used);
  std::memcpy(w.active.address + w.active.used, record, bytes);
  w.active.used += step;
}

bool wants(int kind) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  return w.kinds.count(kind) != 0;
}

template <typename T>
void set(std::vector<std::uint8_t>& record, std::size_t offset, T value) {
  std::memcpy(record.data() + offset, &value, sizeof value);
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

// The other tool, as torch's profiler is one: it takes the callbacks and knows its own buffers.
constexpr std::size_t kOtherBytes = 4096;

void other_requested(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(64, kOtherBytes));
  *bytes = kOtherBytes;
  *most = 0;
  w.others.insert(*buffer);
}

void other_completed(void* /*context*/, std::uint32_t /*stream*/, std::uint8_t* buffer,
                     std::size_t /*bytes*/, std::size_t /*valid*/) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  ++w.other_buffers;
  if (w.others.erase(buffer) == 0) return;  // "called with unknown buffer"
  w.other_records += w.starts[buffer].size();
  w.starts.erase(buffer);
  std::free(buffer);
}

}  // namespace

#define ENTER(name)                                           \
  if (const Result fault = enter(#name); fault != kSuccess) { \
    return fault;                                             \
  }

FAKE_EXPORT Result cuptiGetVersion(std::uint32_t* version) {
  ENTER(cuptiGetVersion)
  const std::uint32_t wanted = version_wanted();
  *version = wanted != 0 ? wanted : world().version;
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

#ifndef FAKECUPTI_WITHOUT_FUNCTION_SWITCHES
FAKE_EXPORT Result cuptiActivityEnableRuntimeApi(std::uint32_t id, std::uint8_t on) {
  if (on != 0) ENTER(cuptiActivityEnableRuntimeApi)
  World& w = world();
  const std::lock_guard lock(w.mutex);
  on != 0 ? (void)w.functions.insert({2, id}) : (void)w.functions.erase({2, id});
  return kSuccess;
}

FAKE_EXPORT Result cuptiActivityEnableDriverApi(std::uint32_t id, std::uint8_t on) {
  if (on != 0) ENTER(cuptiActivityEnableDriverApi)
  World& w = world();
  const std::lock_guard lock(w.mutex);
  on != 0 ? (void)w.functions.insert({1, id}) : (void)w.functions.erase({1, id});
  return kSuccess;
}
#endif

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

// The controls.

FAKE_EXPORT void fakecupti_reset() {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  w.kinds.clear();
  w.functions.clear();
  w.active = Buffer();
  w.starts.clear();
  w.dropped = 0;
  w.calls.clear();
  w.faults.clear();
  w.thread_ids = 0;
  w.rate = 1.0;
  w.offset = 0;
  w.on_own_thread = false;
  w.keeps = false;
  w.stuck = false;
  w.running = 0;
  w.kept.clear();
  w.extra = 0;
  w.struct_bytes = 0;
  w.other_records = 0;
  w.other_buffers = 0;
  w.requested = nullptr;
  w.completed = nullptr;
}

FAKE_EXPORT void fakecupti_fail(const char* call, Result code, int calls_before) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  w.faults[call] = {code, calls_before};
}

FAKE_EXPORT std::uint64_t fakecupti_calls(const char* call) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  return w.calls[call];
}

FAKE_EXPORT std::uint64_t fakecupti_now() { return clock_now(); }

FAKE_EXPORT void fakecupti_set(const char* what, double value) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  const std::string name = what;
  if (name == "rate") w.rate = value;
  if (name == "offset") w.offset = static_cast<std::int64_t>(value);
  if (name == "own_thread") w.on_own_thread = value != 0.0;
  if (name == "keeps") w.keeps = value != 0.0;
  if (name == "stuck") w.stuck = value != 0.0;
  if (name == "running") w.running = static_cast<int>(value);
  if (name == "extra") w.extra = static_cast<std::size_t>(value);
  if (name == "struct_bytes") w.struct_bytes = static_cast<std::size_t>(value);
  if (name == "thread_ids") w.thread_ids = static_cast<int>(value);
}

FAKE_EXPORT std::uint64_t fakecupti_get(const char* what) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  const std::string name = what;
  if (name == "kinds") return w.kinds.size();
  if (name == "functions") return w.functions.size();
  if (name == "thread_ids") return static_cast<std::uint64_t>(w.thread_ids);
  if (name == "other_records") return w.other_records;
  if (name == "other_buffers") return w.other_buffers;
  if (name == "dropped") return w.dropped;
  if (name == "lent") return w.active.address != nullptr ? 1 : 0;
  return 0;
}

// One record of GPU work, `times` times. `what` is kKernel, kMemcpy, kPeerCopy or kMemset.
FAKE_EXPORT void fakecupti_work(int what, const char* symbol, std::uint64_t begin,
                                std::uint64_t end, std::uint32_t stream, std::uint32_t correlation,
                                std::uint32_t graph, std::uint64_t node, std::uint64_t bytes,
                                std::uint32_t memory, std::uint64_t times) {
  if (!wants(what)) return;
  const bool kernel = what == kKernel;
  const bool peer = what == kPeerCopy;
  const std::size_t size = (kernel ? 208 : peer ? 96 : 88) + world().extra;
  std::vector<std::uint8_t> record(size);
  set(record, 0, what);
  if (!kernel) set(record, 8, bytes);
  set(record, 16, begin);
  set(record, 24, end);
  const std::size_t device = kernel ? 40 : 32;
  set(record, device, std::uint32_t{1});
  set(record, device + 4, std::uint32_t{2});
  set(record, device + 8, stream);
  set(record, kernel ? 92 : peer ? 60 : 44, correlation);
  if (kernel) set(record, 104, symbol);
  set(record, kernel ? 144 : peer ? 72 : 64, node);
  set(record, kernel ? 156 : peer ? 80 : 72, graph);
  if (what == kMemset) set(record, 50, static_cast<std::uint16_t>(memory));
  if (what == kMemcpy || peer) {
    set(record, 4, static_cast<std::uint8_t>(memory >> 16U));
    set(record, 5, static_cast<std::uint8_t>(memory >> 8U));
    set(record, 6, static_cast<std::uint8_t>(memory));
  }
  for (std::uint64_t i = 0; i < times; ++i) put(record.data(), size, size);
}

// A call of CUDA: domain 1 is the driver, 2 the runtime.
FAKE_EXPORT void fakecupti_call(int domain, std::uint32_t id, std::uint64_t begin,
                                std::uint64_t end, std::uint32_t thread,
                                std::uint32_t correlation) {
  const int kind = domain == 1 ? kDriver : kRuntime;
  {
    World& w = world();
    const std::lock_guard lock(w.mutex);
    if (w.kinds.count(kind) == 0 && w.functions.count({domain, id}) == 0) return;
  }
  std::vector<std::uint8_t> record(40);
  set(record, 0, kind);
  set(record, 4, id);
  set(record, 8, begin);
  set(record, 16, end);
  set(record, 28, thread);
  set(record, 32, correlation);
  put(record.data(), record.size(), record.size());
}

// A record as it is given; the next one lies `step` bytes behind its start.
FAKE_EXPORT void fakecupti_raw(const std::uint8_t* record, std::size_t bytes, std::size_t step) {
  put(record, bytes, step);
}

// Gives all buffers back, as CUPTI may at any time.
FAKE_EXPORT void fakecupti_flush() { flush(true); }

// Another tool of the process registers its callbacks and enables kernels, or disables them.
FAKE_EXPORT void fakecupti_other_tool(int on) {
  if (on != 0) {
    World& w = world();
    const std::lock_guard lock(w.mutex);
    w.requested = &other_requested;
    w.completed = &other_completed;
    w.kinds.insert(kKernel);
  } else {
    flush(true);
    World& w = world();
    const std::lock_guard lock(w.mutex);
    w.kinds.erase(kKernel);
  }
}
