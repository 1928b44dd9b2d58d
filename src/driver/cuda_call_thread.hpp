// A thread of gpuprof's own that makes a call for another thread, which waits for it only as long
// as it likes: the way out for a caller that holds a lock and does not know how long a call takes.
//
// One call at a time. Where calls follow one another within 50 microseconds, a call takes some 0.3
// microseconds longer than on the caller's thread; after a pause, this thread has to wake up first.
// Tools see the call on the thread "gpuprof-calls".
#pragma once

#include <cstdint>

#include "driver/host_clock.hpp"

namespace gpuprof::driver {

// The thread that asked for what this one does, as pthread_self() names it: on "gpuprof-calls" the
// caller, elsewhere this thread itself.
[[nodiscard]] std::uintptr_t asking_thread() noexcept;

// One call. For the stack of one function, which must not return before done() or wait().
class CallElsewhere {
 public:
  // `data` is the argument of the call, which runs with the context that is current here.
  using Call = void (*)(void* data) noexcept;

  CallElsewhere(Call call, void* data) noexcept;
  CallElsewhere(const CallElsewhere&) = delete;
  CallElsewhere& operator=(const CallElsewhere&) = delete;

  // False where the call was not begun and is the caller's to make: another thread's call is under
  // way, the current context is gone, this is a forked child, or no thread can be started.
  [[nodiscard]] bool begun() const noexcept { return begun_; }
  // Whether the call has ended by `deadline`. Spins, so that a short call returns at once.
  [[nodiscard]] bool done(HostNanoseconds deadline) noexcept;
  // Waits for the end of the call. After done() answered false.
  void wait() noexcept;

 private:
  bool begun_ = false;
};

}  // namespace gpuprof::driver
