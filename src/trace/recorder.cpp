#include "trace/recorder.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "driver/process.hpp"

#ifdef __linux__
#include <sys/syscall.h>
#endif

namespace gpuprof::trace {
namespace {

// A queue with the reader's side.
struct SharedQueue : Queue {
  Chunk* first = nullptr;         // the reader's chunk
  std::uint32_t read = 0;         // of `first`
  std::atomic<bool> left{false};  // its thread has ended
};

struct Registry {
  driver::ForkMutex mutex;
  std::vector<SharedQueue*> queues;
};

Registry& registry() { return driver::immortal<Registry>(); }

std::atomic<std::uint64_t> dropped_count{0};

std::atomic<std::size_t> limit{kDefaultBufferBytes};
std::atomic<std::size_t> waiting{0};  // bytes: chunks in use, and what events have on the heap

bool reserve(std::size_t bytes) noexcept {
  const std::size_t before = waiting.fetch_add(bytes, std::memory_order_relaxed);
  if (before + bytes <= limit.load(std::memory_order_relaxed)) return true;
  waiting.fetch_sub(bytes, std::memory_order_relaxed);
  return false;
}
void give_back(std::size_t bytes) noexcept { waiting.fetch_sub(bytes, std::memory_order_relaxed); }

// Includes the allocator's overhead, and the writer's entry for a GPU span that waits for
// placement.
constexpr std::size_t kExtraBytes = sizeof(Extra) + 128;
std::size_t size_of(const Extra& extra) noexcept {
  const std::size_t own = extra.own ? sizeof(Label) + extra.own->json.capacity() : 0;
  return kExtraBytes + extra.args.capacity() + own;
}

// Writer and reader run on different cores: fetching a cache line takes as long as formatting an
// event.
constexpr std::uint32_t kAhead = 4;

// One busy thread must not keep the writer from the others.
constexpr std::size_t kMostChunksAtOnce = 2048;

__attribute__((tls_model("initial-exec"))) thread_local SharedQueue* own = nullptr;

Chunk* get_chunk() noexcept {
  if (!reserve(sizeof(Chunk))) return nullptr;
  auto* chunk = new (std::nothrow) Chunk;
  if (chunk == nullptr) give_back(sizeof(Chunk));
  return chunk;
}

void give_chunk(Chunk* chunk) noexcept {
  give_back(sizeof(Chunk));
  delete chunk;
}

// Events during the destruction of a thread's locals are dropped.
__attribute__((tls_model("initial-exec"))) thread_local bool ended = false;

// When a thread ends, its queue stays until the writer has read it.
void leave_queue() noexcept {
  if (own != nullptr) own->left.store(true, std::memory_order_release);
  own = nullptr;
  ended = true;
}
thread_local const driver::AtThreadEnd<leave_queue> thread_end;

SharedQueue* make_queue() noexcept {
  Chunk* chunk = get_chunk();
  if (chunk == nullptr) return nullptr;
  auto* queue = new (std::nothrow) SharedQueue;
  if (queue == nullptr) {
    give_chunk(chunk);
    return nullptr;
  }
  queue->chunk = queue->first = chunk;
  queue->tid = thread_id();
  try {
    auto& r = registry();
    const std::lock_guard lock(r.mutex);
    r.queues.push_back(queue);
  } catch (...) {  // out of memory
    give_chunk(chunk);
    delete queue;
    return nullptr;
  }
  thread_end.touch();
  return queue;
}

bool add_chunk(Queue& queue) noexcept {
  Chunk* chunk = get_chunk();
  if (chunk == nullptr) return false;
  queue.chunk->next.store(chunk, std::memory_order_release);
  queue.chunk = chunk;
  queue.used = 0;
  return true;
}

// True once the thread has ended and all is read.
bool read_out(SharedQueue& queue, Take take, void* context) {
  const bool left = queue.left.load(std::memory_order_acquire);  // before reading
  for (std::size_t chunks = 0; chunks < kMostChunksAtOnce; ++chunks) {
    const std::uint32_t written = queue.first->written.load(std::memory_order_acquire);
    while (queue.read < written) {
      const std::uint32_t index = queue.read++;  // first: what take() throws at is not taken again
      __builtin_prefetch(queue.first->place(std::min(index + kAhead, Chunk::kEvents - 1)));
      take(context, queue.first->event(index), queue.tid);
    }
    Chunk* next = queue.first->next.load(std::memory_order_acquire);
    if (queue.read < Chunk::kEvents || next == nullptr) return left;
    give_chunk(queue.first);
    queue.first = next;
    queue.read = 0;
  }
  return false;
}

// Queued events belong to the parent.
void forget_all_in_child() noexcept {
  auto& r = registry();
  r.queues.clear();
  waiting.store(0, std::memory_order_relaxed);
  own = nullptr;
}

const bool fork_hook = (registry(), driver::on_fork_child(forget_all_in_child));

}  // namespace

Queue* queue_of_this_thread() noexcept {
  if (own == nullptr && !ended) own = make_queue();
  return own;
}

Event* claim(Queue& queue) noexcept {
  if (queue.used == Chunk::kEvents && !add_chunk(queue)) {
    dropped_count.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  __builtin_prefetch(queue.chunk->place(std::min(queue.used + kAhead, Chunk::kEvents - 1)), 1);
  return new (queue.chunk->place(queue.used)) Event;
}

void note(const Event& event) noexcept {
  const std::size_t extra = event.extra != nullptr ? size_of(*event.extra) : 0;
  const bool has_room = extra == 0 || reserve(extra);
  Queue* queue = has_room ? queue_of_this_thread() : nullptr;
  Event* place = queue != nullptr ? claim(*queue) : nullptr;
  if (place == nullptr) {
    if (queue == nullptr) dropped_count.fetch_add(1, std::memory_order_relaxed);
    if (has_room) give_back(extra);
    delete event.extra;
    return;
  }
  *place = event;
  publish(*queue);
}

void note(Event event, std::string_view name, std::string_view category, std::string args) {
  try {
    if (!category.empty()) event.category = intern_category(category);
    set_name(event, name);
    set_args(event, std::move(args));
  } catch (const std::exception&) {
    delete event.extra;
    throw;
  }
  note(event);
}

void FreeExtra::operator()(Extra* extra) const noexcept {
  give_back(size_of(*extra));
  delete extra;
}

void set_buffer_limit(std::size_t bytes) noexcept { limit.store(bytes, std::memory_order_relaxed); }

std::uint32_t thread_id() noexcept {
  static thread_local std::uint32_t known = 0;
  static thread_local std::uint32_t known_in = 0;  // of a forked child's thread it is another one
  if (const std::uint32_t now = driver::fork_generation(); known == 0 || known_in != now) {
#ifdef __linux__
    known = static_cast<std::uint32_t>(::syscall(SYS_gettid));
#else
    std::uint64_t id = 0;
    ::pthread_threadid_np(nullptr, &id);
    known = static_cast<std::uint32_t>(id);
#endif
    known_in = now;
  }
  return known;
}

std::uint64_t dropped() noexcept { return dropped_count.load(std::memory_order_relaxed); }

void take_published(Take take, void* context) {
  auto& r = registry();
  std::vector<SharedQueue*> queues;
  {
    const std::lock_guard lock(r.mutex);
    queues = r.queues;
  }
  for (SharedQueue* queue : queues) {
    if (!read_out(*queue, take, context)) continue;
    {
      const std::lock_guard lock(r.mutex);
      r.queues.erase(std::find(r.queues.begin(), r.queues.end(), queue));
    }
    give_chunk(queue->first);
    delete queue;
  }
}

}  // namespace gpuprof::trace
