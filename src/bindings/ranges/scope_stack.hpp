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
#include <cstdint>

#include <cstddef>
#include <vector>

#include "timing/path.hpp"

namespace gpuprof::bindings {

class ScopeStack : public timing::Nesting {
 public:
  ScopeStack();
  ScopeStack(const ScopeStack&) = delete;
  ScopeStack& operator=(const ScopeStack&) = delete;
  // The kernel's number of the thread that made it.
  [[nodiscard]] std::uint32_t thread() const noexcept { return thread_; }
  void open(const timing::NestingEntry& entry) {
    if (empty()) {
      Py_XINCREF(context_);
      holders_.fetch_add(1, std::memory_order_relaxed);
    }
    push(entry);
  }
  void close(std::size_t index) {
    remove(index);
    if (!empty()) return;
    Py_XDECREF(context_);
    let_go();
  }
  // Gives up one hold; the last one destroys the stack. The thread gives up its own when it ends,
  // without the interpreter lock, while another thread may be closing the last entry.
  void let_go() noexcept {
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  friend ScopeStack& current_scope_stack();
  ~ScopeStack();  // by let_go() alone
  const std::uint32_t thread_;
  PyObject* context_ = nullptr;
  std::atomic<std::uint32_t> holders_{1};  // its thread, and its open entries together
};

// The context of the task that runs now, made where the thread has none yet. Borrowed; null for
// lack of memory.
PyObject* current_context();

// The stack of the code that runs now. The reference is good until the thread ends, and as long as
// the stack has open scopes.
ScopeStack& current_scope_stack();

// Calls `see(context, stack)` for the stacks of all threads and tasks, with their open scopes. It
// may not open or close scopes, nor give up the interpreter lock.
void see_scope_stacks(void (*see)(void* context, const ScopeStack& stack), void* context);

// The stacks in which one scope is open, an entry for each time, oldest first.
//
// A list in a vector: an entry is found by the place that it was given, and taken out wherever it
// stands, at the same cost however many there are. Needs the interpreter lock.
class OpenScopeStacks {
 public:
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  // The one added last. There must be one.
  [[nodiscard]] ScopeStack& newest() const noexcept { return *links_[newest_].stack; }

  // Returns its place. Throws std::bad_alloc.
  std::uint32_t add(ScopeStack& stack) {
    std::uint32_t place = free_;
    if (place != kNone) {
      free_ = links_[place].before;
    } else {
      place = static_cast<std::uint32_t>(links_.size());
      links_.emplace_back();
    }
    links_[place] = {&stack, newest_, kNone};
    if (newest_ != kNone) links_[newest_].after = place;
    newest_ = place;
    ++size_;
    return place;
  }

  void remove(std::uint32_t place) noexcept {
    const Link link = links_[place];
    if (link.before != kNone) links_[link.before].after = link.after;
    (link.after != kNone ? links_[link.after].before : newest_) = link.before;
    links_[place].before = free_;
    free_ = place;
    --size_;
  }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Link {
    ScopeStack* stack = nullptr;
    std::uint32_t before = kNone;  // the older one; of a place that is free, the next free one
    std::uint32_t after = kNone;
  };
  std::vector<Link> links_;
  std::uint32_t newest_ = kNone;
  std::uint32_t free_ = kNone;
  std::size_t size_ = 0;
};

}  // namespace gpuprof::bindings
