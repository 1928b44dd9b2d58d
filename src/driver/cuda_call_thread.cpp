#include "driver/cuda_call_thread.hpp"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "driver/cuda_table.hpp"
#include "driver/process.hpp"

namespace gpuprof::driver {

namespace {

constexpr HostNanoseconds kStayAwake = 50'000;

enum class Turn : std::uint8_t { kNobody, kCaller, kThread, kDone };

struct Calls {
  std::atomic<Turn> turn{Turn::kNobody};
  std::atomic<bool> asleep{true};    // the thread waits for `changed`, or is not there yet
  std::atomic<bool> waiting{false};  // the caller does
  std::mutex mutex;                  // of waits for `changed` alone
  std::condition_variable changed;
  bool started = false;  // this and what follows belong to the one whose turn it is
  CallElsewhere::Call call = nullptr;
  void* data = nullptr;
  CUcontext context = nullptr;
  std::uintptr_t caller = 0;
};

thread_local const Calls* made_here = nullptr;  // on the thread that makes them

void relax() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Waits for `turn` without sleeping. Whether it came.
bool spin(const Calls& calls, Turn turn, HostNanoseconds deadline) noexcept {
  do {
    for (int i = 0; i < 100; ++i) {
      if (calls.turn.load(std::memory_order_acquire) == turn) return true;
      relax();
    }
  } while (monotonic_now() < deadline);
  return false;
}

// Gives the other side its turn, and wakes it if it sleeps.
void give(Calls& calls, Turn turn, const std::atomic<bool>& sleeps) noexcept {
  calls.turn.store(turn);
  if (!sleeps.load()) return;
  const std::lock_guard lock(calls.mutex);
  calls.changed.notify_all();
}

void sleep_until(Calls& calls, Turn turn, std::atomic<bool>& sleeps) noexcept {
  std::unique_lock lock(calls.mutex);
  sleeps.store(true);
  calls.changed.wait(lock, [&] { return calls.turn.load() == turn; });
  sleeps.store(false);
}

[[noreturn]] void make_calls(Calls& calls) noexcept {
  const Table& table = *loaded_or_null();
  calls.asleep.store(false);
  made_here = &calls;
  for (;;) {
    if (!spin(calls, Turn::kThread, monotonic_now() + kStayAwake)) {
      sleep_until(calls, Turn::kThread, calls.asleep);
    }
    if (table.cuCtxSetCurrent(calls.context) != CUDA_SUCCESS) table.cuCtxSetCurrent(nullptr);
    calls.call(calls.data);
    give(calls, Turn::kDone, calls.waiting);
  }
}

// The calling thread's context; false if it is gone, or cannot be told.
bool find_context(const Table& table, CUcontext& context) noexcept {
  if (table.cuCtxGetCurrent(&context) != CUDA_SUCCESS) return false;
  unsigned long long id = 0;
  return context == nullptr || table.cuCtxGetId(context, &id) == CUDA_SUCCESS;
}

bool start(Calls& calls) noexcept {
  if (calls.started) return true;
  try {
    start_service_thread("gpuprof-calls", [&calls] { make_calls(calls); }).detach();
    calls.started = true;
  } catch (const std::exception&) {  // no thread can be made
  }
  return calls.started;
}

}  // namespace

std::uintptr_t asking_thread() noexcept {
  if (made_here != nullptr) return made_here->caller;
  return static_cast<std::uintptr_t>(::pthread_self());
}

CallElsewhere::CallElsewhere(Call call, void* data) noexcept {
  const Table* table = loaded_or_null();
  CUcontext context = nullptr;
  if (table == nullptr || is_blocked()) return;
  if (!find_context(*table, context)) return;
  auto& calls = immortal<Calls>();
  Turn nobody = Turn::kNobody;
  if (!calls.turn.compare_exchange_strong(nobody, Turn::kCaller)) return;
  if (!start(calls)) {
    calls.turn.store(Turn::kNobody);
    return;
  }
  calls.call = call;
  calls.data = data;
  calls.context = context;
  calls.caller = asking_thread();
  begun_ = true;
  give(calls, Turn::kThread, calls.asleep);
}

bool CallElsewhere::done(HostNanoseconds deadline) noexcept {
  auto& calls = immortal<Calls>();
  if (!spin(calls, Turn::kDone, deadline)) return false;
  calls.turn.store(Turn::kNobody);
  return true;
}

void CallElsewhere::wait() noexcept {
  auto& calls = immortal<Calls>();
  sleep_until(calls, Turn::kDone, calls.waiting);
  calls.turn.store(Turn::kNobody);
}

}  // namespace gpuprof::driver
