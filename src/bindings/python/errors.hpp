// The border between C++ failures and Python's: exceptions out of driver::Error, warnings out of
// driver::warn_once(). All functions need the interpreter lock. They run Python code, in which a
// daemon thread may end at exit: none of them may be noexcept or stop its unwinding.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <exception>
#include <new>
#include <type_traits>

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

// Whether `answer`, of which this takes the reference, is `expected`. Null is the answer of a call
// that failed, whose exception is cleared as by ignore_exception().
bool has_answered(PyObject* answer, PyObject* expected);

// The exception that is set, if any, taken away until it is put back. No destructor does that, as
// for all that Python owns.
struct TakenException {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;

  TakenException() { PyErr_Fetch(&type, &value, &traceback); }
  void normalize() { PyErr_NormalizeException(&type, &value, &traceback); }
  void put_back() const { PyErr_Restore(type, value, traceback); }
  void drop() const {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
  }
};

// Returns what `work` does. Where it throws, `undo` runs first, but not where CPython ends the
// thread at exit: that must unwind on, and may touch nothing of Python's.
template <typename Work, typename Undo>
std::invoke_result_t<Work&> or_undo(Work&& work, Undo&& undo) {
  try {
    return work();
  } catch (const std::exception&) {
    undo();
    throw;
  }
}

// The same with what has to run in any case.
template <typename Work, typename Cleanup>
std::invoke_result_t<Work&> with_cleanup(Work&& work, Cleanup&& cleanup) {
  if constexpr (std::is_void_v<std::invoke_result_t<Work&>>) {
    or_undo(work, cleanup);
    cleanup();
  } else {
    auto result = or_undo(work, cleanup);
    cleanup();
    return result;
  }
}

// Calls `work` while an object is kept alive, whatever the work drops.
template <typename Work>
void keeping(PyObject* object, Work&& work) {
  Py_INCREF(object);
  with_cleanup(work, [&] { Py_DECREF(object); });
}

// Runs `body` in a C function that CPython calls: exceptions become Python's, the result `failed`.
// What unwinds a thread that CPython ends at exit is no std::exception, and passes through.
template <typename Result, typename Body>
Result guarded(Result failed, Body&& body) {
  try {
    return body();
  } catch (const std::exception&) {
    set_current_exception();
    return failed;
  }
}

// Calls `kBody` so, as a C function that CPython calls.
template <auto kBody>
struct Guarded;
template <typename... Arguments, PyObject* (*kBody)(Arguments...)>
struct Guarded<kBody> {
  static PyObject* call(Arguments... arguments) {
    return guarded<PyObject*>(nullptr, [&] { return kBody(arguments...); });
  }
};

}  // namespace gpuprof::bindings
