#include "cupti/session.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "cupti/buffer_pool.hpp"
#include "driver/error.hpp"
#include "driver/process.hpp"

namespace gpuprof::cupti {
namespace {

using driver::Error;
using driver::ErrorKind;

// Between two questions whether the GPU is done.
constexpr std::chrono::microseconds kLongestPause{2'000};

// All calls are recorded, and those that launch are kept: switching on the records of single
// functions (cuptiActivityEnableDriverApi) succeeds and gives none (CUPTI 13.0).
constexpr std::array<int, 6> kKinds = {kDriverRecord, kRuntimeRecord,  kKernelRecord,
                                       kMemcpyRecord, kPeerCopyRecord, kMemsetRecord};

enum class Phase : std::uint8_t { kIdle, kCollecting, kStopping };

// Never destroyed: CUPTI's thread may call until the process is gone. A forked child may inherit
// the locks in any state, so it takes none of them.
struct State {
  std::mutex control;  // start(), begin_stop(), end_stop()
  std::mutex records;  // guards `collection`
  BufferPool buffers;
  std::unique_ptr<Collection> collection;
  const Library* cupti = nullptr;
  std::unique_ptr<LaunchNames> launch_names;
  std::vector<int> enabled;  // kinds of records
  int thread_ids = 0;        // CUPTI's setting before
  std::atomic<Phase> phase{Phase::kIdle};
  std::string problem;                       // the first refusal while it is stopped
  std::atomic<std::uint32_t> generation{0};  // one more than that of the process; 0: never used
};

State& session() { return driver::immortal<State>(); }

bool is_other_process(const State& state) noexcept {
  const std::uint32_t used = state.generation.load(std::memory_order_acquire);
  return used != 0 && used != driver::fork_generation() + 1;
}

void refuse_forked(const State& state) {
  if (!is_other_process(state) && (driver::blocked.load() & driver::kForked) == 0) return;
  throw Error(ErrorKind::kForked,
              "kernels cannot be collected in a child of a process that has used CUDA or CUPTI; "
              "start the child with the 'spawn' or 'forkserver' method");
}

// Decodes what lies in a buffer. Called by CUPTI's callback.
void decode(State& state, std::uint8_t* buffer, std::size_t valid_bytes) {
  const Table& table = state.cupti->table;
  const std::lock_guard lock(state.records);
  if (state.collection == nullptr) return;  // it came after the end
  Collection& collection = *state.collection;
  const driver::HostNanoseconds now = driver::host_now();
  const std::uint8_t* end = buffer + valid_bytes;
  const std::uint8_t* before = nullptr;
  void* next = nullptr;
  for (;;) {
    const Result result = table.cuptiActivityGetNextRecord(buffer, valid_bytes, &next);
    if (result != kSuccess) {
      if (result != kEndOfBuffer) collection.add_malformed();
      break;
    }
    const auto* record = static_cast<const std::uint8_t*>(next);
    if (record < buffer || record >= end || record <= before ||
        static_cast<std::size_t>(record - buffer) % kRecordAlignment != 0) {
      collection.add_malformed();
      break;
    }
    try {
      collection.add(record, end, now);
    } catch (const std::exception&) {  // out of memory
      collection.add_unkept();
    }
    before = record;
  }
  std::size_t lost = 0;
  if (table.cuptiActivityGetNumDroppedRecords(nullptr, 0, &lost) == kSuccess) {
    collection.add_lost(lost);
  }
}

// The callbacks. Nothing may be thrown into CUPTI.

void buffer_requested(std::uint8_t** buffer, std::size_t* bytes, std::size_t* records) {
  State& state = session();
  *buffer = nullptr;
  *bytes = 0;
  *records = 0;  // as many as fit
  if (state.phase.load() == Phase::kIdle || is_other_process(state)) return;
  try {
    *buffer = state.buffers.lend();
  } catch (const std::exception&) {  // out of memory
  }
  if (*buffer != nullptr) *bytes = kBufferBytes;
}

void buffer_completed(void* /*context*/, std::uint32_t /*stream*/, std::uint8_t* address,
                      std::size_t /*bytes*/, std::size_t valid_bytes) {
  State& state = session();
  if (is_other_process(state)) return;
  try {
    Buffer buffer = state.buffers.take_back(address);
    if (buffer == nullptr) return;  // another tool's
    valid_bytes = std::min(valid_bytes, kBufferBytes);
    if (valid_bytes != 0) decode(state, address, valid_bytes);
    if (state.phase.load() != Phase::kIdle) state.buffers.keep(std::move(buffer));
  } catch (const std::exception&) {  // out of memory
  }
}

void check_result(const Library& library, Result result, const char* call) {
  if (result != kSuccess) throw error_of(library, result, call);
}

std::uint64_t realtime_now() noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// Of a few tries the one with the least time between two readings of the host's clock.
ClockPair read_clocks(const Library& library) {
  constexpr std::int64_t kSameTime = 1'000'000;
  ClockPair best;
  best.error = std::numeric_limits<std::int64_t>::max();
  for (int tries = 0; tries < 8; ++tries) {
    ClockPair pair;
    const driver::HostNanoseconds before = driver::host_now();
    const Result result = library.table.cuptiGetTimestamp(&pair.cupti);
    const driver::HostNanoseconds after = driver::host_now();
    check_result(library, result, "cuptiGetTimestamp");
    pair.host = before + (after - before) / 2;
    pair.error = (after - before + 1) / 2;
    const auto apart = static_cast<std::int64_t>(realtime_now() - pair.cupti);
    pair.realtime = apart >= 0 && apart < kSameTime + 2 * pair.error;
    if (pair.error < best.error) best = pair;
  }
  return best;
}

void refuse_if_held(const Library& library) {
  std::uint32_t kinds = 0;
  if (library.table.cuptiActivityGetEnabledKinds == nullptr) return;
  const Result result =
      library.table.cuptiActivityGetEnabledKinds(nullptr, nullptr, nullptr, &kinds);
  if (result != kSuccess || kinds == 0) return;
  throw Error(
      ErrorKind::kUnavailable,
      "another tool of this process collects through CUPTI now, such as torch.profiler; end "
      "it first, or use its kernel times: " +
          std::to_string(kinds) + " kinds of records are enabled in " + library.path);
}

// The records of this CUPTI are at least as long as what is read of them, where it can tell.
void check_layouts(const Library& library) {
  if (library.table.cuptiActivityGetStructSize == nullptr) return;
  for (const int kind : kKinds) {
    std::size_t bytes = 0;
    if (library.table.cuptiActivityGetStructSize(kind, 0, &bytes) != kSuccess) continue;
    if (bytes >= bytes_read_of(kind)) continue;
    throw Error(ErrorKind::kUnavailable,
                library.path + " has records that this gpuprof does not know: kind " +
                    std::to_string(kind) + " has " + std::to_string(bytes) + " bytes, and " +
                    std::to_string(bytes_read_of(kind)) + " are read; update gpuprof");
  }
}

// With the control lock held. Returns the first failure.
Result disable_all(State& state) {
  Result failure = kSuccess;
  for (const int kind : state.enabled) {
    const Result result = state.cupti->table.cuptiActivityDisable(kind);
    if (failure == kSuccess) failure = result;
  }
  state.enabled.clear();
  return failure;
}

void note_problem(State& state, Result result, const char* call) {
  if (result == kSuccess || !state.problem.empty()) return;
  state.problem = error_of(*state.cupti, result, call).what();
}

std::unique_ptr<Collection> take_collection(State& state) {
  state.phase.store(Phase::kIdle);
  const std::lock_guard lock(state.records);
  return std::move(state.collection);
}

}  // namespace

void start(std::size_t max_records, const std::vector<std::string>& candidates) {
  State& state = session();
  refuse_forked(state);
  const std::lock_guard control(state.control);
  if (is_collecting()) {
    driver::refuse(
        "kernels are being collected already; there is one collection at a time for the "
        "process, so end that one first");
  }
  const Library& library = load(candidates);
  const Table& table = library.table;
  state.cupti = &library;
  state.generation.store(driver::fork_generation() + 1, std::memory_order_release);
  check_layouts(library);
  refuse_if_held(library);
  if (state.launch_names == nullptr) {
    state.launch_names = std::make_unique<LaunchNames>([&](int domain, std::uint32_t id) {
      const char* name = nullptr;
      return table.cuptiGetCallbackName(domain, id, &name) == kSuccess ? name : nullptr;
    });
  }
  std::size_t before = 0;
  table.cuptiActivityGetNumDroppedRecords(nullptr, 0, &before);  // reading sets it to zero
  auto collection =
      std::make_unique<Collection>(max_records, *state.launch_names, read_clocks(library));
  check_result(library, table.cuptiGetThreadIdType(&state.thread_ids), "cuptiGetThreadIdType");
  {
    const std::lock_guard lock(state.records);
    state.collection = std::move(collection);
  }
  state.buffers.begin();
  state.phase.store(Phase::kCollecting);
  try {
    check_result(library,
                 table.cuptiActivityRegisterCallbacks(&buffer_requested, &buffer_completed),
                 "cuptiActivityRegisterCallbacks");
    check_result(library, table.cuptiSetThreadIdType(kSystemThreadIds), "cuptiSetThreadIdType");
    for (const int kind : kKinds) {
      state.enabled.push_back(kind);  // to be disabled, whatever the answer
      check_result(library, table.cuptiActivityEnable(kind), "cuptiActivityEnable");
    }
  } catch (...) {
    disable_all(state);
    table.cuptiSetThreadIdType(state.thread_ids);
    take_collection(state);
    throw;
  }
}

void begin_stop() {
  State& state = session();
  refuse_forked(state);
  const std::lock_guard control(state.control);
  if (state.phase.load() != Phase::kCollecting) {
    driver::refuse("no kernels are being collected");
  }
  state.phase.store(Phase::kStopping);
  state.problem.clear();
  note_problem(state, disable_all(state), "cuptiActivityDisable");
}

bool poll_stop(driver::HostNanoseconds until) {
  State& state = session();
  for (std::chrono::microseconds pause{50};; pause = std::min(2 * pause, kLongestPause)) {
    const Result result = state.cupti->table.cuptiActivityFlushAll(0);
    if (result != kSuccess || !state.buffers.is_missing_some()) return true;
    if (driver::host_now() >= until) return false;
    std::this_thread::sleep_for(pause);
  }
}

Collected end_stop() {
  State& state = session();
  const std::lock_guard control(state.control);
  const Table& table = state.cupti->table;
  note_problem(state, table.cuptiActivityFlushAll(kForcedFlush), "cuptiActivityFlushAll");
  table.cuptiSetThreadIdType(state.thread_ids);
  Collected result;
  result.displaced = state.buffers.is_missing_some();
  result.records = take_collection(state);
  state.buffers.free_idle();
  const ClockPair& first = result.records->start();
  ClockPair last = first;
  try {
    last = read_clocks(*state.cupti);
  } catch (const Error& error) {
    if (state.problem.empty()) state.problem = error.what();
  }
  result.clock = ClockMap(first, last);
  result.problem = std::move(state.problem);
  return result;
}

bool is_collecting() noexcept {
  const State& state = session();
  return state.phase.load() != Phase::kIdle && !is_other_process(state);
}

}  // namespace gpuprof::cupti
