#include "driver/process.hpp"

#include <pthread.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <utility>

namespace gpuprof::driver {
namespace {

std::atomic<bool> initialised{false};

struct ForkHooks {
  std::atomic<ForkMutex*> newest{nullptr};
  std::array<void (*)() noexcept, 8> callbacks{};
  std::size_t callback_count = 0;
  std::mutex forking;           // held by the thread that forks, from before until after
  ForkMutex* locked = nullptr;  // the newest of those that it holds
};

// Never destroyed: a fork may happen while static destructors run.
ForkHooks& hooks() noexcept { return immortal<ForkHooks>(); }

// A child's callbacks read such variables, whose memory a thread gets with the first access.
thread_local volatile bool touched = false;

void before_fork() {
  auto& h = hooks();
  touched = true;
  h.forking.lock();
  h.locked = nullptr;
  while (ForkMutex* newest = h.newest.load(std::memory_order_acquire)) {
    if (newest == h.locked) break;  // else some were made before the lock that it takes was taken
    for (ForkMutex* each = newest; each != h.locked; each = each->next()) each->lock();
    h.locked = newest;
  }
}

void unlock_all() {
  auto& h = hooks();
  for (ForkMutex* each = h.locked; each != nullptr; each = each->next()) each->unlock();
  h.forking.unlock();
}

void in_child() {
  unlock_all();
  process_generation.fetch_add(1, std::memory_order_relaxed);
  if (initialised.load(std::memory_order_relaxed)) blocked.fetch_or(kForked);
  auto& h = hooks();
  for (std::size_t i = 0; i < h.callback_count; ++i) h.callbacks[i]();
}

void install_hooks() noexcept {
  static const int once = pthread_atfork(before_fork, unlock_all, in_child);
  (void)once;
}

}  // namespace

void driver_was_initialised() noexcept {
  if (initialised.load(std::memory_order_acquire)) return;
  install_hooks();
  static const int once = std::atexit([] { blocked.fetch_or(kExiting); });
  (void)once;
  initialised.store(true, std::memory_order_release);
}

ForkMutex::ForkMutex() noexcept {
  auto& newest = hooks().newest;
  next_ = newest.load(std::memory_order_relaxed);
  while (!newest.compare_exchange_weak(next_, this, std::memory_order_release)) {
  }
  install_hooks();
}

std::thread start_service_thread(const char* name, std::function<void()> run) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread(std::move(run));
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
#ifdef __linux__
  ::pthread_setname_np(thread.native_handle(), name);
#else
  static_cast<void>(name);
#endif
  return thread;
}

void EndService::end(Service& service) noexcept {
  {
    const std::lock_guard lock(service.mutex);
    service.over = true;
  }
  service.changed.notify_one();
  service.thread.join();
}

bool on_fork_child(void (*callback)() noexcept) noexcept {
  auto& h = hooks();
  if (h.callback_count == h.callbacks.size()) std::abort();
  h.callbacks[h.callback_count++] = callback;
  install_hooks();
  return true;
}

}  // namespace gpuprof::driver
