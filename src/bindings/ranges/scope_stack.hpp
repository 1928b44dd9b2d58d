// Which scopes are open where this code runs: one Nesting for each thread and asyncio context.
//
// A stack is found by the context object of the thread's state, which asyncio changes with the
// task, so that nothing is set or copied for a scope. A new thread and a new task start at the
// root. The context is kept alive while its stack has open scopes (its address could come back
// otherwise). All functions need the interpreter lock, which also guards stacks that another thread
// closes.
#pragma once

#include <Python.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "timing/path.hpp"

namespace gpuprof::bindings {

class ScopeStack : public timing::Nesting {
 public:
  ScopeStack();
  ScopeStack(const ScopeStack&) = delete;
  ScopeStack& operator=(const ScopeStack&) = delete;
  ~ScopeStack();
  // The kernel's number of the thread that made it.
  [[nodiscard]] std::uint32_t thread() const noexcept { return thread_; }
  // Cheaper than to look for the current stack; true in a context's second thread, too.
  [[nodiscard]] bool has_current_context() const noexcept {
    return PyThreadState_Get()->context == context_;
  }
  timing::NestingEntry& open() {
    if (empty()) Py_XINCREF(context_);
    return push();
  }
  void close(std::size_t index) {
    remove(index);
    if (!empty()) return;
    PyObject* context = context_;
    if (has_ended()) delete this;
    Py_XDECREF(context);  // last: it may run Python code
  }
  // Its thread has ended: it goes with its last open scope, or without any when another thread
  // makes its first stack. Without the interpreter lock, so that it may be gone at once.
  void end_thread() noexcept { thread_gone_.store(true, std::memory_order_release); }
  [[nodiscard]] bool has_ended() const noexcept {
    return thread_gone_.load(std::memory_order_acquire) && empty();
  }

 private:
  friend ScopeStack& current_scope_stack();
  friend ScopeStack& find_scope_stack();
  const std::uint32_t thread_;
  PyObject* context_ = nullptr;
  std::atomic<bool> thread_gone_{false};
};

// The context of the task that runs now, made where the thread has none yet. Borrowed; null for
// lack of memory.
PyObject* current_context();

// The stack of the code that runs now. The reference is good until the thread ends, and as long as
// the stack has open scopes.
ScopeStack& current_scope_stack();
// The same after another task or thread.
ScopeStack& find_scope_stack();

// An open scope of the statistics.
struct OpenScope {
  const timing::Path* path;
  timing::HostNanoseconds since;
  std::uint32_t thread;
};
// Those of all threads and tasks.
std::vector<OpenScope> open_scopes();

}  // namespace gpuprof::bindings
