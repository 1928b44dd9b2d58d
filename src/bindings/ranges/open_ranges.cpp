#include "bindings/ranges/open_ranges.hpp"

#include <pybind11/pybind11.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "bindings/python/switches.hpp"
#include "bindings/python/thread_end.hpp"
#include "bindings/ranges/scope_events.hpp"
#include "bindings/ranges/torch_profiler.hpp"
#include "driver/error.hpp"
#include "driver/process.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::bindings::open_ranges {
namespace {

struct Entry {
  const void* owner;  // null once it was left from elsewhere, and waits for its own thread
  driver::HostNanoseconds begin;
  nvtx::Domain* domain;  // where it is pushed; null: nowhere
  PyObject* torch;       // an owned record_function, or null
  const void* frame;
  bool frame_may_suspend;
  std::uint32_t pops = 0;  // of ranges below it in its domain that were closed before it
};
using Entries = std::vector<Entry>;  // the newest last

// Written with the interpreter lock only, but for `thread_gone`.
struct Stack {
  Entries open;
  bool has_left = false;  // entries without an owner
  std::uint32_t tid = trace::thread_id();
  std::uint32_t process = driver::fork_generation();  // that its thread is in
  std::atomic<bool> thread_gone{false};
};

std::vector<Stack*>& range_stacks() { return driver::immortal<std::vector<Stack*>>(); }

__attribute__((tls_model("initial-exec"))) thread_local Stack* own_stack = nullptr;

// Without the interpreter lock, so the stack itself goes later.
void end_stack(void* ended) {
  own_stack = nullptr;
  static_cast<Stack*>(ended)->thread_gone.store(true, std::memory_order_release);
}
const ThreadEnd thread_end(&end_stack);

// Of a forked parent's threads only the one that forked goes on in the child.
void follow_into_child() noexcept {
  if (own_stack == nullptr) return;
  own_stack->process = driver::fork_generation();
  own_stack->tid = trace::thread_id();
}

const bool fork_hook = driver::on_fork_child(follow_into_child);

bool has_ended(const Stack& stack) noexcept {
  return stack.thread_gone.load(std::memory_order_acquire) ||
         stack.process != driver::fork_generation();
}

void drop_stacks_of_ended_threads() {
  auto& all = range_stacks();
  const auto first_gone =
      std::partition(all.begin(), all.end(), [](const Stack* stack) { return !has_ended(*stack); });
  const std::vector<Stack*> gone(first_gone, all.end());
  all.erase(first_gone, all.end());
  for (Stack* stack : gone) {
    count -= stack->open.size();
    for (const Entry& entry : stack->open) Py_XDECREF(entry.torch);
    delete stack;
  }
}

Stack& stack_of_this_thread() {
  if (own_stack == nullptr) {
    drop_stacks_of_ended_threads();
    range_stacks().reserve(range_stacks().size() + 1);
    own_stack = new Stack;
    range_stacks().push_back(own_stack);
    thread_end.watch(own_stack);
  }
  return *own_stack;
}

// Which of the owner's entries the current frame closes, counted from 1; 0: none.
std::size_t pick(const Entries& open, const void* owner, bool several) {
  const FrameMark now = several ? current_frame() : FrameMark{};
  const FrameMatch match = match_frame(open, owner, several ? &now : nullptr);
  return match.closed != 0 ? match.closed : match.newest;
}

Closed closed_of(const Stack& stack, std::size_t place) {
  const auto depth =
      static_cast<std::uint16_t>(std::min<std::size_t>(place - 1, trace::kUnknownDepth - 1));
  return {true, place != stack.open.size(), depth, 0, stack.open[place - 1].begin};
}

// Takes an entry of this thread out. Its pops are left for now where a range of its domain is open
// on top of it.
void close_at(Stack& stack, std::size_t place) {
  const auto taken = stack.open.begin() + static_cast<std::ptrdiff_t>(place - 1);
  const Entry entry = *taken;
  std::uint32_t pops = entry.domain != nullptr ? entry.pops + 1 : 0;
  const auto over = std::find_if(taken + 1, stack.open.end(),
                                 [&](const Entry& each) { return each.domain == entry.domain; });
  if (over != stack.open.end()) over->pops += std::exchange(pops, 0);
  stack.open.erase(taken);
  --count;
  for (; pops > 0; --pops) nvtx::pop(*entry.domain);
  if (entry.torch != nullptr) torch_profiler::leave(entry.torch);  // which may come back here
}

// For its own thread to close.
void leave(Stack& stack, std::size_t place) {
  stack.open[place - 1].owner = nullptr;
  stack.has_left = true;
}

void close_left(Stack& stack) {
  while (stack.has_left) {
    const std::size_t place = match_frame(stack.open, nullptr, nullptr).newest;
    stack.has_left = place != 0;
    if (place != 0) close_at(stack, place);
  }
}

Closed close_on_another_thread(const void* owner) {
  for (Stack* stack : range_stacks()) {
    if (stack == own_stack || has_ended(*stack)) continue;
    const std::size_t place = pick(stack->open, owner, false);
    if (place == 0) continue;
    Closed closed = closed_of(*stack, place);
    closed.crossed = true;  // for that thread it is not over
    closed.tid = stack->tid;
    leave(*stack, place);
    driver::warn_once(driver::Warning::kForeignRange,
                      "gpuprof: an annotation or timer scope was left on another thread than it "
                      "was entered on; tools see it end when its own thread next opens or closes "
                      "one. Use gpuprof.range_start and range_end across threads");
    return closed;
  }
  return {};
}

}  // namespace

void open(const void* owner, const NamedRange& shown, std::uint32_t told, FrameMark frame) {
  Stack& stack = stack_of_this_thread();
  close_left(stack);
  const bool to_nvtx = (told & kNvtx) != 0;
  if (to_nvtx) shown.range.prepare();
  if ((told & kTrace) != 0) name_this_thread();
  PyObject* torch = (told & kTorchImported) != 0 ? torch_profiler::enter(shown.name) : nullptr;
  stack.open.push_back(
      {owner, 0, to_nvtx ? &shown.range.domain() : nullptr, torch, frame.frame, frame.may_suspend});
  ++count;
  if (to_nvtx) shown.range.push();
  if ((told & kTrace) != 0) stack.open.back().begin = driver::host_now();
}

Closed close(const void* owner, bool several, bool elsewhere) {
  Stack* stack = own_stack;
  std::size_t place = 0;
  if (stack != nullptr) {
    try {
      close_left(*stack);
    } catch (const pybind11::error_already_set&) {  // an interrupt, which keeps no range open
      place = pick(stack->open, owner, several);
      if (place != 0) close_at(*stack, place);
      throw;
    }
    place = pick(stack->open, owner, several);
  }
  if (place == 0) return elsewhere ? close_on_another_thread(owner) : Closed{};
  const Closed closed = closed_of(*stack, place);
  close_at(*stack, place);
  return closed;
}

bool is_pushed(const void* owner) noexcept {
  if (own_stack == nullptr) return false;
  return std::any_of(own_stack->open.begin(), own_stack->open.end(), [owner](const Entry& entry) {
    return entry.owner == owner && entry.domain != nullptr;
  });
}

void abandon(const void* owner) {
  for (Stack* stack : range_stacks()) {
    while (const std::size_t place = pick(stack->open, owner, false)) leave(*stack, place);
  }
}

}  // namespace gpuprof::bindings::open_ranges
