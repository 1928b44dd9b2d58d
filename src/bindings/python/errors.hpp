// The border between C++ failures and Python's: exceptions out of driver::Error, warnings out of
// driver::warn_once(). All functions need the interpreter lock. They run Python code, in which a
// daemon thread may end at exit: none of them may be noexcept or stop its unwinding.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <pybind11/pybind11.h>

#include <exception>
#include <new>

#include "driver/error.hpp"

namespace gpuprof::bindings {

// Sets Python's error indicator to the exception of gpuprof.errors that stands for `error`.
void set_error(const driver::Error& error);

[[noreturn]] void throw_invalid_state(const char* message);

// Issues the warnings that src/ has noted. Never leaves an exception set: where warnings are turned
// into errors, the error is reported as unraisable, because what noted it only watches.
void emit_warnings();

inline void emit_pending_warnings() {
  if (driver::warnings_pending()) emit_warnings();
}

void set_current_exception();

// Clears Python's exception, if one is set: for what only watches. An interrupt is no Exception and
// is thrown. Always false.
bool ignore_exception();

// Runs `body` in a C function that CPython calls: exceptions become Python's, the result `failed`.
// A thread that CPython ends at exit unwinds through here and must not be stopped.
template <typename Result, typename Body>
Result guarded(Result failed, Body&& body) {
  try {
    return body();
#ifdef __GLIBCXX__
  } catch (abi::__forced_unwind&) {
    throw;
#endif
  } catch (...) {
    set_current_exception();
    return failed;
  }
}

}  // namespace gpuprof::bindings
