#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>

#include "graph.hpp"
#include "script.hpp"
#include "state.hpp"

namespace fakecuda {
namespace {

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
std::atomic<std::uint64_t> next_thread_id{1};
std::uint64_t epoch = 1;

void before_fork() { lock(); }
void after_fork_in_parent() { unlock(); }

// The child has one thread, whatever the others of its parent were waiting for. That thread holds
// the lock, taken before the fork.
void after_fork_in_child() {
  pthread_cond_init(&condition, nullptr);
  State& s = state();
  s.forked = s.forked || s.initialised;
  s.blocked_calls = 0;
  unlock();
}

// A key and not thread_local: ThreadSanitizer mistakes the end of a library's thread_local objects
// for a race.
pthread_key_t thread_key() {
  static const pthread_key_t key = [] {
    pthread_key_t made{};
    pthread_key_create(&made, [](void* thread) { delete static_cast<Thread*>(thread); });
    return made;
  }();
  return key;
}

std::atomic<std::uint64_t>* shared_counter() {
  void* page = mmap(nullptr, sizeof(std::atomic<std::uint64_t>), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) std::abort();
  return new (page) std::atomic<std::uint64_t>(0);
}

void free_memory(State& s) {
  for (const auto& [address, allocation] : s.memory) std::free(reinterpret_cast<void*>(address));
}

State* make_state() {
  auto* made = new State;  // never destroyed: read during exit
  apply_environment(*made);
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  return made;
}

}  // namespace

State& state() {
  static State& storage = *make_state();
  return storage;
}

std::atomic<std::uint64_t>& calls_in_child() {
  static std::atomic<std::uint64_t>& counter = *shared_counter();
  return counter;
}

void reset_state() {
  State& s = state();
  const std::uint64_t releases = s.releases + 1;  // calls that a script holds go on
  const int blocked = s.blocked_calls;
  free_memory(s);
  s = State{};
  s.releases = releases;
  s.blocked_calls = blocked;
  apply_environment(s);
  notify();
  calls_in_child().store(0);
  ++epoch;
}

Thread& this_thread() {
  auto* thread = static_cast<Thread*>(pthread_getspecific(thread_key()));
  if (thread == nullptr) {
    thread = new Thread;
    thread->id = next_thread_id.fetch_add(1);
    pthread_setspecific(thread_key(), thread);
  }
  if (thread->epoch != epoch) {
    const std::uint64_t id = thread->id;
    *thread = Thread{};
    thread->id = id;
    thread->epoch = epoch;
  }
  return *thread;
}

void lock() { pthread_mutex_lock(&mutex); }
void unlock() { pthread_mutex_unlock(&mutex); }

void leave() {
  State& s = state();
  if (!s.gone && !s.forked) bury(s);
  unlock();
}

void notify() { pthread_cond_broadcast(&condition); }
void wait_for_notice() { pthread_cond_wait(&condition, &mutex); }

void pause(int microseconds) {
  unlock();
  usleep(static_cast<useconds_t>(microseconds));
  lock();
}

Handle new_handle(Kind kind) {
  const std::uint64_t serial = ++state().serial;
  return static_cast<Handle>(kind) << 56 | (epoch & 0x7fffff) << 33 | std::uint64_t{1} << 32 |
         (serial & 0xffffffff);
}

std::string new_label(const char* function) {
  return std::string(function) + " #" + std::to_string(state().serial);
}

void misuse(const char* function, const char* why) {
  std::fprintf(stderr, "FAKECUDA MISUSE %s %s\n", function, why);
  std::fflush(stderr);
  std::abort();
}

}  // namespace fakecuda

// Before any thread exists: the lock of fork handlers and the counter shared with children.
__attribute__((constructor)) static void load() {
  fakecuda::state();
  fakecuda::calls_in_child();
}
