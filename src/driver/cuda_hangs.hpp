// Driver calls that do not return: each thread notes the call that it is in, and whoever looks says
// on stderr, once a process, which call was there at an earlier look and still is.
//
// A note is a few plain writes to memory of the thread's own and reads no clock. Whoever drains or
// waits for a sample looks, and so does the writer of an open trace; where GPUPROF_HANG_S is set,
// to the seconds after which a call is said to hang, a thread of its own looks. What it gets wrong:
// nothing is said where nobody looks, a hang counts from the first look that found it, and a wait
// for work that only takes long is said too.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace gpuprof::driver {

// What a thread is doing. Written by the thread, read by looks. Never freed: later threads get it.
struct alignas(64) CallNote {
  std::atomic<const char*> call{nullptr};          // null between calls
  std::atomic<std::uint64_t> count{0};             // of calls
  std::atomic<const std::string*> scope{nullptr};  // the path of the scope entered last; immortal
  std::atomic<int> thread{0};                      // the kernel's number; 0: none has it
  std::uint64_t seen = 0;                          // the call that a look found,
  std::int64_t since = 0;                          // and when it found it first
  CallNote* next = nullptr;
};

inline __attribute__((tls_model("initial-exec"))) thread_local CallNote* own_note = nullptr;
CallNote& make_call_note() noexcept;
inline CallNote& call_note() noexcept { return own_note != nullptr ? *own_note : make_call_note(); }

// An entry point of the driver, under its name.
template <typename Function>
struct Entry;
template <typename... Arguments>
struct Entry<CUresult(CUDAAPI*)(Arguments...)> {
  CUresult operator()(Arguments... arguments) const {
    CallNote& note = call_note();
    const char* around = note.call.load(std::memory_order_relaxed);  // a tool's callback runs in it
    note.count.store(note.count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    note.call.store(name, std::memory_order_release);
    const CUresult status = function(arguments...);
    note.call.store(around, std::memory_order_release);
    return status;
  }
  CUresult(CUDAAPI* function)(Arguments...) = nullptr;
  const char* name = nullptr;
};

// Looks, unless another look was a moment ago. Any thread; calls nothing of the driver's.
void look_for_hangs() noexcept;

// Starts the thread that looks where GPUPROF_HANG_S is set and this process has none.
void start_looking() noexcept;

}  // namespace gpuprof::driver
