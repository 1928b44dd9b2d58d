// The open scopes of each thread, for code that knows no tasks but threads.
//
// A scope that is left on another thread than it was entered on is taken out of the stack that it
// is in, so a stack has a lock, and lives as long as its thread or an open scope in it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "timing/clock.hpp"
#include "timing/path.hpp"

namespace gpuprof::timing {

class ThreadNesting {
 public:
  // The calling thread's, made at the first call; null once the thread's locals are destroyed, as
  // they are in atexit handlers and destructors of statics. Throws std::bad_alloc.
  static ThreadNesting* of_this_thread();

  ThreadNesting(const ThreadNesting&) = delete;
  ThreadNesting& operator=(const ThreadNesting&) = delete;

  struct Place {
    const Path* path;
    std::uint16_t depth;  // how many scopes are open around it, at most 65,534
  };
  // Enters a scope of `owner` and holds the stack. By the thread that the stack belongs to. Throws
  // std::bad_alloc, then nothing is entered.
  Place enter(const void* owner, Sample* sample, std::string_view name);

  // Where the calling thread is: the innermost open path, and how many scopes are open. Throws
  // std::bad_alloc.
  static Place here();

  // Leaves the newest scope of `owner` and gives up the hold. Any thread, in any order.
  void leave(const void* owner) noexcept;

 private:
  ThreadNesting() = default;
  ~ThreadNesting() = default;
  static void end_thread() noexcept;
  void let_go() noexcept {
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  const Path& below(const Path& parent, std::string_view name);
  [[nodiscard]] std::uint16_t depth() const noexcept;

  // Where the paths of a few names were found last, by the place of the name's text in memory. An
  // entry is used only where parent and text are equal.
  struct Known {
    const Path* parent = nullptr;
    const Path* path = nullptr;
  };
  static constexpr std::size_t kKnown = 64;

  SpinFlag lock_;
  Nesting open_;
  Known known_[kKnown];
  std::atomic<std::uint32_t> holders_{1};  // its thread, and its open scopes
};

}  // namespace gpuprof::timing
