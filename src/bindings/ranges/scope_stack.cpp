#include "bindings/ranges/scope_stack.hpp"

#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "bindings/python/thread_end.hpp"
#include "driver/process.hpp"
#include "timing/sample.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::bindings {
namespace {

// All that exist.
auto& all_stacks() { return driver::immortal<std::unordered_set<ScopeStack*>>(); }

void delete_ended_stacks() {
  auto& all = all_stacks();
  for (auto each = all.begin(); each != all.end();) {
    ScopeStack* stack = *each++;  // first: what is deleted takes itself out
    if (stack->has_ended()) delete stack;
  }
}

// The stacks of one thread: the one in use, and those of suspended tasks with open scopes.
struct ThreadStacks {
  ScopeStack* current = nullptr;
  std::unordered_map<PyObject*, ScopeStack*> parked;

  void park(PyObject* context, ScopeStack* stack) {
    ScopeStack*& place = parked[context];
    delete place;  // one that another thread has emptied, for a context now dead
    place = stack;
  }

  ScopeStack* unpark(PyObject* context) {
    const auto found = parked.find(context);
    if (found == parked.end()) return nullptr;
    ScopeStack* stack = found->second;
    parked.erase(found);
    return stack;
  }
};

// Plain, because Python code may still run when the thread's locals have been destroyed.
thread_local ThreadStacks* own_stacks = nullptr;

// A stack with open scopes stays with them: another thread may close them later.
void end_stacks(void* ended) {
  own_stacks = nullptr;
  const std::unique_ptr<ThreadStacks> stacks(static_cast<ThreadStacks*>(ended));
  if (stacks->current != nullptr) stacks->current->end_thread();
  for (const auto& [context, stack] : stacks->parked) stack->end_thread();
}

const ThreadEnd thread_end(&end_stacks);

ThreadStacks& stacks_of_this_thread() {
  if (own_stacks == nullptr) {
    delete_ended_stacks();
    own_stacks = new ThreadStacks;
    thread_end.watch(own_stacks);
  }
  return *own_stacks;
}

}  // namespace

ScopeStack::ScopeStack() : thread_(trace::thread_id()) { all_stacks().insert(this); }

ScopeStack::~ScopeStack() { all_stacks().erase(this); }

std::vector<OpenScope> open_scopes() {
  std::vector<OpenScope> found;
  for (const ScopeStack* stack : all_stacks()) {
    for (const timing::NestingEntry& entry : stack->entries()) {
      const timing::Sample* sample = entry.sample;
      if (sample == nullptr || !sample->counted) continue;
      found.push_back({sample->path, sample->host_begin, stack->thread()});
    }
  }
  return found;
}

PyObject* current_context() {
  PyThreadState* state = PyThreadState_Get();
  if (state->context == nullptr) {
    // A thread gets its context when it first needs one; that must not happen between two scopes.
    Py_XDECREF(PyContext_CopyCurrent());
    PyErr_Clear();
  }
  return state->context;
}

ScopeStack& current_scope_stack() {
  const ThreadStacks* stacks = own_stacks;
  if (stacks != nullptr && stacks->current != nullptr) {
    const PyObject* context = PyThreadState_Get()->context;
    if (context != nullptr && stacks->current->context_ == context) return *stacks->current;
  }
  return find_scope_stack();
}

ScopeStack& find_scope_stack() {
  PyObject* context = current_context();
  ThreadStacks& stacks = stacks_of_this_thread();
  ScopeStack* stack = stacks.current;
  if (stack != nullptr && stack->context_ == context) return *stack;
  if (stack != nullptr && !stack->empty()) {
    stacks.park(stack->context_, stack);
    stack = nullptr;
  }
  if (!stacks.parked.empty()) {
    if (ScopeStack* parked = stacks.unpark(context); parked != nullptr) {
      delete stack;  // it is empty
      stack = parked;
    }
  }
  if (stack == nullptr) stack = new ScopeStack;
  stack->context_ = context;
  stacks.current = stack;
  return *stack;
}

}  // namespace gpuprof::bindings
