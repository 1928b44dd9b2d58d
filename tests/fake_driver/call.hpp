// One call of an entry point, from the outside in.
//
// call() takes the lock, counts the call, lets virtual time pass, and answers without running the
// body where the driver is gone, the process was forked, CUDA is not initialised or a script says
// so. A body returns the driver's answer; it runs with the lock held.
#pragma once

#include <type_traits>
#include <utility>

#include "state.hpp"

namespace fakecuda {

enum class InChild { kNotInitialised, kAnswersSuccess, kInvalidValue, kWorks, kCrashes };

struct Function {
  const char* symbol;
  InChild in_child = InChild::kNotInitialised;
  bool needs_init = true;
  bool passes_time = true;
};

// The lock, the count and the answer that a call gets before its body.
class Call {
 public:
  explicit Call(const Function& function);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call();

  [[nodiscard]] bool refused() const { return refused_; }
  Result finish(Result answer);

 private:
  void enter();
  void refuse(Result answer);
  void apply_rule();

  const Function& function_;
  bool refused_ = false;
  Result answer_ = kSuccess;
  bool fails_after_ = false;
  bool sticky_ = false;
  Result fault_ = kSuccess;
};

// A body may take the symbol, for what it says of a misuse and for the labels of what it makes.
template <typename Body>
Result answer_of(const Function& function, Body&& body) {
  if constexpr (std::is_invocable_v<Body, const char*>) {
    return std::forward<Body>(body)(function.symbol);
  } else {
    return std::forward<Body>(body)();
  }
}

template <typename Body>
Result call(const Function& function, Body&& body) {
  Call entered(function);
  if (entered.refused()) return entered.finish(kSuccess);
  return entered.finish(answer_of(function, std::forward<Body>(body)));
}

// The same for a call that gives `handle` up. A handle whose destroy was made to fail, by a script
// or by a broken context, is no leak of the caller's: it leaves the list of live objects.
template <typename Body>
Result call_destroying(const Function& function, Handle handle, Body&& body) {
  Call entered(function);
  if (entered.refused()) {
    state().abandoned.insert(handle);
    return entered.finish(kSuccess);
  }
  state().abandoned.erase(handle);
  const Result answer = answer_of(function, std::forward<Body>(body));
  if (answer != kSuccess && answer == state().device_fault) state().abandoned.insert(handle);
  return entered.finish(answer);
}

// Adds a line to the driver's log, in the driver's form.
void log_line(const std::string& text);
// The line for what a function answered, where that is an error.
void log_answer(Result answer, const char* function);

// What the whole device answers from now on.
void poison(Result code);

}  // namespace fakecuda
