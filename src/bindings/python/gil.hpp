// Letting go of the interpreter lock, and coming back, in the one way that survives exit.
//
// At exit CPython ends daemon threads inside the call that takes the lock back, until 3.13 by
// unwinding their stacks, also through frames that own Python objects or may not be unwound. Such a
// thread stays there for good instead, as any does from 3.14 on. Every wait in the bindings goes
// through here.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include "timing/clock.hpp"
#include "timing/device.hpp"
#include "timing/timeline.hpp"

namespace gpuprof::bindings {

inline bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

// Takes the lock back, and stays for good where CPython ends the thread meanwhile.
inline void take_gil_back(PyThreadState* saved) {
  try {
    PyEval_RestoreThread(saved);
  } catch (...) {  // to leave this block would end the process
    for (;;) ::pause();
  }
}

// Returns what `work` does without the interpreter lock. Its C++ exceptions come out with the lock
// held again. `take_back` is what takes it.
template <typename Work>
std::invoke_result_t<Work&> without_gil(Work&& work,
                                        void (*take_back)(PyThreadState*) = &take_gil_back) {
  using Result = std::invoke_result_t<Work&>;
  if constexpr (!std::is_void_v<Result>) {
    std::optional<Result> result;
    without_gil([&] { result.emplace(work()); }, take_back);
    // NOLINTNEXTLINE(bugprone-unchecked-optional-access): what throws does not get here
    return *std::move(result);
  } else {
    std::exception_ptr error;
    PyThreadState* saved = PyEval_SaveThread();
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    take_back(saved);
    if (error) std::rethrow_exception(error);
  }
}

// Calls `poll(until)` until it answers true, without the lock, and lets Python handle signals at
// least every 50 ms. Throws what the handler raised (KeyboardInterrupt).
template <typename Poll>
void keep_polling_without_gil(Poll&& poll) {
  constexpr timing::HostNanoseconds kSlice = 50'000'000;
  while (!without_gil([&] { return poll(timing::monotonic_now() + kSlice); })) {
    if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
  }
}

// Whether reading what the GPU has finished waits for nothing. Where spans are placed on the host's
// clock, it may make the events for that, or wait for a thread that does.
[[nodiscard]] inline bool reads_at_once() noexcept {
  return !timing::timeline::wanted.load(std::memory_order_relaxed);
}

// The same for a poll that only reads; the first time with the lock where that waits for nothing.
template <typename Poll>
void wait_without_gil(Poll&& poll) {
  if (reads_at_once() && poll(timing::monotonic_now())) return;
  keep_polling_without_gil(poll);
}

// Reads and delivers what the GPU has finished. Lets the lock go where that may wait.
inline void drain() {
  if (reads_at_once()) {
    timing::device::drain();
  } else {
    without_gil(&timing::device::drain);
  }
}

// Runs a call that initialises CUDA where that is still to be done: then without the lock, because
// cuInit may take seconds.
template <typename Work>
std::invoke_result_t<Work&> initialising(Work&& work) {
  return timing::device::is_ready() ? work() : without_gil(work);
}

}  // namespace gpuprof::bindings
