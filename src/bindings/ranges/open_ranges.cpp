#include "bindings/ranges/open_ranges.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/python/switches.hpp"
#include "bindings/python/thread_end.hpp"
#include "bindings/ranges/scope_events.hpp"
#include "bindings/ranges/torch_profiler.hpp"
#include "driver/error.hpp"
#include "driver/process.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::bindings::open_ranges {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;
constexpr std::uint32_t kFew = 64;          // entries are looked through one by one
constexpr std::uint32_t kCountDepth = 256;  // entries, at the most, to tell a depth

struct Entry {
  const void* owner;
  driver::HostNanoseconds begin;
  nvtx::Domain* domain;  // where it is pushed; null: nowhere
  PyObject* torch;       // an owned record_function, or null
  const void* frame;
  bool frame_may_suspend;
  std::uint32_t pops = 0;  // of ranges below it in its domain that were closed before it
  std::uint32_t below = kNone;
  std::uint32_t above = kNone;
  std::uint32_t older = kNone;  // the next older one of its key, where there is an index
};

// Entries of one owner are told apart by their frames where those may be suspended.
struct Key {
  const void* owner;
  const void* frame;
  bool operator==(const Key& other) const noexcept {
    return owner == other.owner && frame == other.frame;
  }
};

struct KeyHash {
  std::size_t operator()(const Key& key) const noexcept {
    const std::hash<const void*> hash;
    return hash(key.owner) ^ (hash(key.frame) * 31);
  }
};

Key key_of(const Entry& entry) noexcept {
  return {entry.owner, entry.frame_may_suspend ? entry.frame : nullptr};
}

// The open entries of a thread, linked in the order of their opening, so that each can be taken out
// at the same cost. Many are found by an index, which is made when it is first needed and goes when
// all are closed.
class Entries {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::uint32_t top() const noexcept { return top_; }
  Entry& operator[](std::uint32_t place) noexcept { return entries_[place]; }
  const Entry& operator[](std::uint32_t place) const noexcept { return entries_[place]; }

  Entry& push(const Entry& entry) {
    std::uint32_t place = free_;
    if (place == kNone) {
      place = static_cast<std::uint32_t>(entries_.size());
      entries_.emplace_back();
    } else {
      free_ = entries_[place].below;
    }
    Entry& added = entries_[place] = entry;
    added.below = std::exchange(top_, place);
    if (added.below != kNone) entries_[added.below].above = place;
    ++size_;
    if (indexed_) add_to_index(place);
    return added;
  }

  Entry take(std::uint32_t place) noexcept {
    const Entry entry = entries_[place];
    if (indexed_) take_from_index(place);
    if (entry.below != kNone) entries_[entry.below].above = entry.above;
    (entry.above != kNone ? entries_[entry.above].below : top_) = entry.below;
    entries_[place].below = std::exchange(free_, place);
    if (--size_ == 0) forget_index();
    return entry;
  }

  // The newest one of this key; kNone without one.
  std::uint32_t find(const Key& key) {
    if (!indexed_) make_index();
    const auto found = newest_.find(key);
    return found != newest_.end() ? found->second : kNone;
  }

 private:
  void make_index() {
    std::uint32_t oldest = top_;
    while (entries_[oldest].below != kNone) oldest = entries_[oldest].below;
    for (std::uint32_t i = oldest; i != kNone; i = entries_[i].above) add_to_index(i);
    indexed_ = true;
  }
  void add_to_index(std::uint32_t place) {
    Entry& entry = entries_[place];
    const auto [newest, is_new] = newest_.try_emplace(key_of(entry), place);
    entry.older = is_new ? kNone : std::exchange(newest->second, place);
  }
  void take_from_index(std::uint32_t place) noexcept {
    const auto newest = newest_.find(key_of(entries_[place]));
    std::uint32_t* link = &newest->second;
    while (*link != place) link = &entries_[*link].older;
    *link = entries_[place].older;
    if (newest->second == kNone) newest_.erase(newest);
  }
  void forget_index() noexcept {
    newest_.clear();
    indexed_ = false;
  }

  std::vector<Entry> entries_;
  std::uint32_t top_ = kNone;
  std::uint32_t free_ = kNone;
  std::size_t size_ = 0;
  bool indexed_ = false;
  std::unordered_map<Key, std::uint32_t, KeyHash> newest_;
};

// What another thread closed, and this one has still to tell its tools.
struct Late {
  nvtx::Domain* domain;
  std::uint32_t pops;
  PyObject* torch;
};

// Written with the interpreter lock only, but for `thread_gone`.
struct Stack {
  Entries open;
  std::vector<Late> late;
  std::uint32_t tid = trace::thread_id();
  std::uint32_t process = driver::fork_generation();  // that its thread is in
  bool named = false;                                 // traces of that process know the name
  std::atomic<bool> thread_gone{false};
};

std::vector<Stack*>& range_stacks() {
  static std::vector<Stack*>& storage = *new std::vector<Stack*>;
  return storage;
}

#ifdef __ELF__
__attribute__((tls_model("initial-exec")))
#endif
thread_local Stack* own_stack = nullptr;

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
  own_stack->named = false;
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
  auto& all = range_stacks();
  const auto first_gone =
      std::partition(all.begin(), all.end(), [](const Stack* stack) { return !has_ended(*stack); });
  gone.assign(first_gone, all.end());
  all.erase(first_gone, all.end());
  for (Stack* stack : gone) {
    count -= stack->open.size();
    for (std::uint32_t i = stack->open.top(); i != kNone; i = stack->open[i].below) {
      Py_XDECREF(stack->open[i].torch);
    }
    for (const Late& late : stack->late) Py_XDECREF(late.torch);
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

void pop_domain(nvtx::Domain* domain, std::uint32_t pops) noexcept {
  for (; domain != nullptr && pops > 0; --pops) nvtx::pop(*domain);
}

// Takes Python objects out before it lets their code run, because that may come back here.
void pop_closed(Stack& stack) {
  std::vector<Late> late;
  late.swap(stack.late);
  for (const Late& one : late) pop_domain(one.domain, one.pops);
  for (const Late& one : late) {
    if (one.torch != nullptr) torch_profiler::leave(one.torch);
  }
}

// Which of the owner's entries the current frame closes. kNone: none.
std::uint32_t pick(Entries& open, const void* owner, bool several) {
  const FrameMark now = several ? current_frame() : FrameMark{};
  if (open.size() > kFew) {
    if (now.frame != nullptr) {
      const std::uint32_t own_frames = open.find({owner, now.frame});
      if (own_frames != kNone) return own_frames;
    }
    const std::uint32_t place = open.find({owner, nullptr});
    if (place != kNone && is_plain(open[place], now)) return place;
  }
  const auto match = match_frame(
      owner, several ? &now : nullptr, open.top(), kNone,
      [&open](std::uint32_t place) -> const Entry& { return open[place]; },
      [&open](std::uint32_t place) { return open[place].below; });
  return match.closed != kNone ? match.closed : match.newest;
}

std::uint16_t clipped(std::size_t depth) {
  return static_cast<std::uint16_t>(std::min<std::size_t>(depth, kUnknownDepth - 1));
}

std::uint16_t depth_of(const Entries& open, std::uint32_t place) noexcept {
  std::size_t above = 0;
  for (std::uint32_t i = open[place].above; i != kNone; i = open[i].above) {
    if (++above > kCountDepth) return kUnknownDepth;
  }
  return clipped(open.size() - 1 - above);
}

// Takes an entry out. Its pops are left for now where a range of its domain is open on top of it.
Closed take_out(Stack& stack, std::uint32_t place, Late& late) {
  const Entry& entry = stack.open[place];
  const Closed closed{true, entry.above != kNone, depth_of(stack.open, place), 0, entry.begin};
  late = {entry.domain, entry.domain != nullptr ? entry.pops + 1 : 0, entry.torch};
  std::uint32_t over = entry.above;
  while (over != kNone && stack.open[over].domain != entry.domain) over = stack.open[over].above;
  if (over != kNone) stack.open[over].pops += std::exchange(late.pops, 0);
  stack.open.take(place);
  --count;
  return closed;
}

Closed close_on_this_thread(Stack& stack, std::uint32_t place) {
  Late late{};
  const Closed closed = take_out(stack, place, late);
  pop_domain(late.domain, late.pops);
  if (late.torch != nullptr) torch_profiler::leave(late.torch);
  return closed;
}

Closed close_on_another_thread(const void* owner) {
  for (Stack* stack : range_stacks()) {
    if (stack == own_stack || has_ended(*stack)) continue;
    const std::uint32_t place = pick(stack->open, owner, false);
    if (place == kNone) continue;
    stack->late.emplace_back();
    Closed closed = take_out(*stack, place, stack->late.back());
    closed.crossed = true;  // for that thread it is not over
    closed.tid = stack->tid;
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
  if (!stack.late.empty()) pop_closed(stack);
  const bool to_nvtx = (told & kNvtx) != 0;
  if (to_nvtx) shown.range.prepare();
  if ((told & kTrace) != 0 && !stack.named) {
    stack.named = true;
    name_this_thread();
  }
  PyObject* torch = (told & kTorchImported) != 0 ? torch_profiler::enter(shown.name) : nullptr;
  Entry& entry = stack.open.push(
      {owner, 0, to_nvtx ? &shown.range.domain() : nullptr, torch, frame.frame, frame.may_suspend});
  ++count;
  if (to_nvtx) shown.range.push();
  if ((told & kTrace) != 0) entry.begin = driver::host_now();
}

Closed close(const void* owner, bool several, bool elsewhere) {
  Stack* stack = own_stack;
  std::uint32_t place = kNone;
  if (stack != nullptr) {
    if (!stack->late.empty()) pop_closed(*stack);
    place = stack->open.top();
    if (several || place == kNone || stack->open[place].owner != owner) {
      place = pick(stack->open, owner, several);
    }
  }
  if (place == kNone) return elsewhere ? close_on_another_thread(owner) : Closed{};
  return close_on_this_thread(*stack, place);
}

bool is_pushed(const void* owner) noexcept {
  if (own_stack == nullptr) return false;
  const Entries& open = own_stack->open;
  for (std::uint32_t i = open.top(); i != kNone; i = open[i].below) {
    if (open[i].owner == owner && open[i].domain != nullptr) return true;
  }
  return false;
}

void abandon(const void* owner) {
  for (Stack* stack : range_stacks()) {
    for (;;) {
      const std::uint32_t place = pick(stack->open, owner, false);
      if (place == kNone) break;
      stack->late.emplace_back();
      take_out(*stack, place, stack->late.back());
    }
  }
}

}  // namespace gpuprof::bindings::open_ranges
