// Tells what a thread has of its own that the thread ends.
//
// By a key of pthreads: its destructor also runs for what was made after the thread's locals were
// destroyed, where Python code may still run. It runs without the interpreter lock. Without a key,
// which a process may run out of, what threads have is kept for good.
#pragma once

#include <pthread.h>

namespace gpuprof::bindings {

// For a static variable.
class ThreadEnd {
 public:
  explicit ThreadEnd(void (*end)(void* own)) : exists_(pthread_key_create(&key_, end) == 0) {}

  // Has `end` called with `own` when this thread ends.
  void watch(void* own) const noexcept {
    if (exists_) pthread_setspecific(key_, own);
  }

 private:
  pthread_key_t key_{};
  bool exists_;
};

}  // namespace gpuprof::bindings
