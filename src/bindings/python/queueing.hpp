// Calls that queue something on a stream, by a caller with the interpreter lock.
//
// Such a call waits in the driver where the stream's queue is full: for ever if the GPU waits for
// another Python thread. The driver does not tell how full a queue is, so the lock is always let
// go. That costs next to nothing unless other threads keep the lock: then it comes back late, after
// five milliseconds beside a busy thread. For a while after that, such calls are made on a thread
// of gpuprof's own, and the caller keeps the lock for 0.2 milliseconds at most.
#pragma once

#include <Python.h>

#include <atomic>
#include <cstdint>
#include <exception>

#include "bindings/python/gil.hpp"

namespace gpuprof::timing {
class EventClock;
}

namespace gpuprof::bindings {

// Where something is queued.
struct QueuePlace {
  std::uintptr_t stream = 0;
  timing::EventClock* clock = nullptr;  // of what the call belongs to; its context may be gone
};

namespace queueing {

// Set while kernels are collected: they are found by the threads that launched them. NVTX has the
// same effect, because tools find a range's work by its thread.
inline std::atomic<bool> calls_stay{false};

// Whether the lock is to be kept, by what was seen last.
[[nodiscard]] bool keeps_lock() noexcept;
// Makes the call on gpuprof's own thread, and returns when it has ended. False: it was not made,
// because that thread cannot make it.
bool call_elsewhere(const QueuePlace& place, void (*call)(void*) noexcept, void* data);
// Takes the lock back, and notes how long that took.
void take_back(PyThreadState* saved);

}  // namespace queueing

// Runs `work`, which queues something. Its C++ exceptions come out with the lock held again.
template <typename Work>
void queue_without_gil(const QueuePlace& place, Work&& work) {
  if (queueing::keeps_lock()) {
    std::exception_ptr error;
    auto call = [&]() noexcept {
      try {
        work();
      } catch (...) {
        error = std::current_exception();
      }
    };
    const auto run = [](void* data) noexcept { (*static_cast<decltype(call)*>(data))(); };
    if (queueing::call_elsewhere(place, run, &call)) {
      if (error) std::rethrow_exception(error);
      return;
    }
  }
  without_gil(work, &queueing::take_back);
}

}  // namespace gpuprof::bindings
