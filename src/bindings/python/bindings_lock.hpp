// What stands in for the interpreter lock on a build of Python without one.
//
// The bindings were written for the interpreter lock: it guards the scopes, the stacks, the ranges,
// the callables. Without it one lock of their own does, a critical section of CPython's. It behaves
// as the interpreter lock does: a thread that waits for another lock of CPython's, or lets go of
// the interpreter for a while, gives it up meanwhile, so that no order of locks matters.
// Every way from Python into the module takes it: guarded(), and lock_functions() for what pybind11
// binds. Where there is an interpreter lock all of this is nothing.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <utility>

namespace gpuprof::bindings {

#ifdef Py_GIL_DISABLED

// Once, before anything else of the module.
void make_bindings_lock();

// In a forked child: the lock may have been handed to a thread that the child does not have.
void renew_bindings_lock();

// Has whatever pybind11 has bound in the module take the lock when it is called or destroyed. Once
// all is bound.
void lock_functions(const pybind11::module_& module);

// Not by RAII: a thread that ends at exit unwinds without the lock, and must not give it back. Both
// functions may be where that happens, so neither is noexcept.
class BindingsLock {
 public:
  BindingsLock() = default;
  BindingsLock(const BindingsLock&) = delete;
  BindingsLock& operator=(const BindingsLock&) = delete;

  void take() {
    if (innermost != nullptr && innermost->is_on_top()) return;  // this thread has it
    outer_ = std::exchange(innermost, this);
    taken_ = true;
    PyCriticalSection_Begin(&section_, object);
  }
  void give_back() {
    if (!taken_) return;
    PyCriticalSection_End(&section_);
    innermost = outer_;
    taken_ = false;
  }

  // Runs `work`, Python code of any length, without the lock that this thread has. It may not
  // throw.
  template <typename Work>
  static auto without(Work&& work) {
    BindingsLock* held = innermost;
    if (held == nullptr || !held->is_on_top()) return work();
    held->give_back();
    auto result = work();
    held->take();
    return result;
  }

 private:
  friend void renew_bindings_lock();
  // Whether it is the newest critical section of this thread, and not given up.
  [[nodiscard]] bool is_on_top() const noexcept {
    return PyThreadState_GetUnchecked()->critical_section ==
           reinterpret_cast<std::uintptr_t>(&section_);
  }

  static inline PyObject* object = nullptr;
  static inline thread_local BindingsLock* innermost = nullptr;

  PyCriticalSection section_{};
  BindingsLock* outer_ = nullptr;
  bool taken_ = false;
};

#else

inline void make_bindings_lock() {}
inline void lock_functions(const pybind11::module_& /*module*/) {}

class BindingsLock {
 public:
  void take() noexcept {}
  void give_back() noexcept {}
  template <typename Work>
  static auto without(Work&& work) {
    return work();
  }
};

#endif

}  // namespace gpuprof::bindings
