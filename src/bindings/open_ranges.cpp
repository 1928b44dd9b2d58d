#include "bindings/open_ranges.hpp"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "bindings/emitters.hpp"
#include "bindings/torch_profiler.hpp"
#include "bindings/trace_scope.hpp"
#include "driver/error.hpp"
#include "driver/process.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::bindings::open_ranges {
namespace {

struct Entry {
  const void* owner;
  driver::HostNanoseconds begin;
  nvtx::Domain* domain;  // where it is pushed; null: nowhere
  PyObject* torch;       // an owned record_function, or null
  const void* frame;
  bool frame_may_suspend;
  bool closed;  // only its pop is left to do
};

// Written with the interpreter lock only, but for `thread_gone`.
struct Stack {
  std::vector<Entry> entries;
  std::size_t closed = 0;  // entries that wait for their pop
  std::uint32_t tid = trace::thread_id();
  std::uint32_t process = driver::fork_generation();  // that its thread is in
  bool named = false;                                 // traces of that process know the name
  std::atomic<bool> thread_gone{false};
};

std::vector<Stack*>& stacks() {
  static std::vector<Stack*>& storage = *new std::vector<Stack*>;
  return storage;
}

#ifdef __ELF__
__attribute__((tls_model("initial-exec")))
#endif
thread_local Stack* own = nullptr;

// Without the interpreter lock, so the stack itself goes later.
struct ThreadEnd {
  ThreadEnd() = default;
  ThreadEnd(const ThreadEnd&) = delete;
  ThreadEnd& operator=(const ThreadEnd&) = delete;
  ~ThreadEnd() {
    if (own != nullptr) own->thread_gone.store(true, std::memory_order_release);
    own = nullptr;
  }
  void touch() noexcept {}
};
thread_local ThreadEnd thread_end;

// Of a forked parent's threads only the one that forked goes on in the child.
void follow_into_child() noexcept {
  if (own == nullptr) return;
  own->process = driver::fork_generation();
  own->tid = trace::thread_id();
  own->named = false;
}

const bool fork_hook = [] {
  driver::on_fork_child(follow_into_child);
  return true;
}();

bool has_ended(const Stack& stack) noexcept {
  return stack.thread_gone.load(std::memory_order_acquire) ||
         stack.process != driver::fork_generation();
}

void drop_stacks_of_ended_threads() {
  std::vector<Stack*> gone;
  auto& all = stacks();
  const auto first_gone =
      std::partition(all.begin(), all.end(), [](const Stack* stack) { return !has_ended(*stack); });
  gone.assign(first_gone, all.end());
  all.erase(first_gone, all.end());
  for (Stack* stack : gone) {
    count -= stack->entries.size() - stack->closed;
    for (const Entry& entry : stack->entries) Py_XDECREF(entry.torch);
    delete stack;
  }
}

Stack& stack_of_this_thread() {
  if (own == nullptr) {
    drop_stacks_of_ended_threads();
    stacks().reserve(stacks().size() + 1);
    own = new Stack;
    stacks().push_back(own);
    thread_end.touch();
  }
  return *own;
}

void take_out(Stack& stack, std::size_t index) {
  stack.entries.erase(stack.entries.begin() + static_cast<std::ptrdiff_t>(index));
}

// Pops what is closed and on top of its domain's stack. Takes Python objects out before it lets
// their code run, because that may come back here.
void settle(Stack& stack) {
  std::vector<PyObject*> records;
  std::vector<const nvtx::Domain*> covered;  // domains with an open range above
  for (std::size_t i = stack.entries.size(); i > 0; --i) {
    Entry& entry = stack.entries[i - 1];
    if (!entry.closed) {
      if (entry.domain != nullptr) covered.push_back(entry.domain);
      continue;
    }
    if (entry.torch != nullptr) records.push_back(std::exchange(entry.torch, nullptr));
    if (entry.domain != nullptr) {
      if (std::find(covered.begin(), covered.end(), entry.domain) != covered.end()) continue;
      nvtx::pop(*entry.domain);
    }
    take_out(stack, i - 1);
    --stack.closed;
  }
  for (PyObject* record : records) torch_profiler::leave(record);
}

// Which of the owner's entries the current frame closes: the one that it opened, if that can be
// told; else the newest, passing over those of suspended generators. Past the end: none.
std::size_t pick(const Stack& stack, const void* owner, bool several) {
  const std::size_t none = stack.entries.size();
  const FrameMark now = several ? current_frame() : FrameMark{};
  std::size_t newest = none;
  std::size_t newest_plain = none;
  for (std::size_t i = none; i > 0; --i) {
    const Entry& entry = stack.entries[i - 1];
    if (entry.closed || entry.owner != owner) continue;
    if (!several) return i - 1;
    if (entry.frame_may_suspend && entry.frame == now.frame) return i - 1;
    const bool plain = entry.frame == nullptr || !(entry.frame_may_suspend || now.may_suspend);
    if (newest == none) newest = i - 1;
    if (plain && newest_plain == none) newest_plain = i - 1;
  }
  return newest_plain != none ? newest_plain : newest;
}

std::uint16_t clipped(std::size_t depth) {
  return static_cast<std::uint16_t>(std::min<std::size_t>(depth, kUnknownDepth - 1));
}

Closed describe(const Stack& stack, std::size_t index) {
  Closed closed;
  const auto above = stack.entries.begin() + static_cast<std::ptrdiff_t>(index) + 1;
  closed.found = true;
  closed.crossed =
      std::any_of(above, stack.entries.end(), [](const Entry& e) { return !e.closed; });
  closed.depth = clipped(static_cast<std::size_t>(
      std::count_if(stack.entries.begin(), above - 1, [](const Entry& e) { return !e.closed; })));
  closed.begin = stack.entries[index].begin;
  return closed;
}

void mark_closed(Stack& stack, Entry& entry) {
  entry.closed = true;
  entry.owner = nullptr;
  ++stack.closed;
  --count;
}

// The usual case. Nothing waits for its pop.
Closed close_newest(Stack& stack) {
  const Entry entry = stack.entries.back();
  stack.entries.pop_back();
  --count;
  if (entry.domain != nullptr) nvtx::pop(*entry.domain);
  if (entry.torch != nullptr) torch_profiler::leave(entry.torch);
  return {true, false, clipped(stack.entries.size()), 0, entry.begin};
}

Closed close_on_another_thread(const void* owner) {
  for (Stack* stack : stacks()) {
    if (stack == own || has_ended(*stack)) continue;
    const std::size_t index = pick(*stack, owner, false);
    if (index == stack->entries.size()) continue;
    Closed closed = describe(*stack, index);
    closed.crossed = true;  // for that thread it is not over
    closed.tid = stack->tid;
    mark_closed(*stack, stack->entries[index]);
    driver::warn_once(driver::Warning::kForeignRange,
                      "gpuprof: an annotation or timer scope was left on another thread than it "
                      "was entered on; tools see it end when its own thread next opens or closes "
                      "one. Use gpuprof.range_start and range_end across threads");
    return closed;
  }
  return {};
}

}  // namespace

void open(const void* owner, const Shown& shown, std::uint32_t who, FrameMark frame) {
  Stack& stack = stack_of_this_thread();
  if (stack.closed != 0) settle(stack);
  const bool to_nvtx = (who & kNvtx) != 0;
  if (to_nvtx) shown.range.prepare();
  if ((who & kTrace) != 0 && !stack.named) {
    stack.named = true;
    name_this_thread();
  }
  PyObject* torch = (who & kTorchImported) != 0 ? torch_profiler::enter(shown.name) : nullptr;
  stack.entries.push_back({owner, 0, to_nvtx ? &shown.range.domain() : nullptr, torch, frame.frame,
                           frame.may_suspend, false});
  ++count;
  if (to_nvtx) shown.range.push();
  if ((who & kTrace) != 0) stack.entries.back().begin = driver::host_now();
}

Closed close(const void* owner, bool several, bool elsewhere) {
  Stack* stack = own;
  if (stack != nullptr && !several && stack->closed == 0 && !stack->entries.empty() &&
      stack->entries.back().owner == owner) {
    return close_newest(*stack);
  }
  const std::size_t index = stack != nullptr ? pick(*stack, owner, several) : 0;
  if (stack == nullptr || index == stack->entries.size()) {
    return elsewhere ? close_on_another_thread(owner) : Closed{};
  }
  const Closed closed = describe(*stack, index);
  mark_closed(*stack, stack->entries[index]);
  settle(*stack);
  return closed;
}

bool is_pushed(const void* owner) noexcept {
  if (own == nullptr) return false;
  return std::any_of(own->entries.begin(), own->entries.end(), [owner](const Entry& entry) {
    return entry.owner == owner && entry.domain != nullptr;
  });
}

void abandon(const void* owner) {
  for (Stack* stack : stacks()) {
    for (Entry& entry : stack->entries) {
      if (entry.owner == owner) mark_closed(*stack, entry);
    }
  }
}

}  // namespace gpuprof::bindings::open_ranges
