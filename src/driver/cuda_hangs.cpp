#include "driver/cuda_hangs.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <new>
#include <thread>

#include "driver/host_clock.hpp"
#include "driver/process.hpp"

namespace gpuprof::driver {

namespace {

constexpr double kUsual = 30.0;
constexpr HostNanoseconds kNever = std::numeric_limits<HostNanoseconds>::max();
constexpr HostNanoseconds kLooking = kNever - 1;

double seconds_asked() noexcept {
  const char* text = std::getenv("GPUPROF_HANG_S");
  const double seconds = text != nullptr ? std::strtod(text, nullptr) : 0.0;
  return seconds > 0.0 && seconds < 1e9 ? seconds : 0.0;
}

struct Looks {
  const double asked = seconds_asked();
  const HostNanoseconds limit = static_cast<HostNanoseconds>((asked > 0 ? asked : kUsual) * 1e9);
  std::atomic<CallNote*> newest{nullptr};
  std::atomic<HostNanoseconds> next{0};  // when there is a look again; kNever once a hang was said
  std::atomic<bool> has_thread{asked <= 0.0};  // or needs none
  CallNote nobodys;                            // of threads that end, and for lack of memory
};

Looks& looks() noexcept { return immortal<Looks>(); }

// A child has none of its parent's threads, and the one that forked has another number there.
void forget_notes_in_child() noexcept {
  auto& all = looks();
  own_note = nullptr;
  all.newest.store(nullptr);
  all.next.store(0);
  all.has_thread.store(all.asked <= 0.0);
}
const bool fork_hook = (looks(), on_fork_child(forget_notes_in_child));

void give_note() noexcept {
  if (own_note != nullptr) {
    own_note->call.store(nullptr);
    own_note->thread.store(0);
  }
  own_note = &looks().nobodys;
}
thread_local const AtThreadEnd<give_note> thread_end;

CallNote* take_note(Looks& all, int thread) noexcept {
  for (CallNote* each = all.newest.load(); each != nullptr; each = each->next) {
    int nobody = 0;
    if (each->thread.compare_exchange_strong(nobody, thread)) return each;
  }
  auto* made = new (std::nothrow) CallNote;
  if (made == nullptr) return nullptr;
  made->thread.store(thread);
  made->next = all.newest.load();
  while (!all.newest.compare_exchange_weak(made->next, made)) {
  }
  return made;
}

bool say(const char* call, const CallNote& note, HostNanoseconds since) noexcept {
  const int thread = note.thread.load();
  const std::string* scope = note.scope.load();
  char text[64];
  std::snprintf(text, sizeof text, "/proc/self/task/%d/comm", thread);
  std::FILE* file = std::fopen(text, "re");
  if (file == nullptr || std::fscanf(file, "%31[^\n]", text) != 1) text[0] = '\0';
  if (file != nullptr) std::fclose(file);
  char line[600];  // written at once: others write too
  const int length = std::snprintf(
      line, sizeof line,
      "gpuprof: %s has not returned for %.3g s (thread %d %s; last scope %.200s). It waits for GPU "
      "work that is long or never ends, or the driver is stuck: `py-spy dump --pid %d` shows where "
      "the threads are\n",
      call, static_cast<double>(since) / 1e9, thread, text,
      scope != nullptr ? scope->c_str() : "(none)", static_cast<int>(::getpid()));
  return ::write(STDERR_FILENO, line, static_cast<std::size_t>(length)) >= 0;
}

// Whether the thread was in this call `limit` ago, and that is said.
bool hangs(CallNote& note, HostNanoseconds now, HostNanoseconds limit) noexcept {
  const char* call = note.call.load();  // before its number, which is written first
  const std::uint64_t count = note.count.load();
  if (call == nullptr || count != note.seen) {
    note.seen = count;
    note.since = now;
    return false;
  }
  return now - note.since >= limit && say(call, note, now - note.since);
}

}  // namespace

CallNote& make_call_note() noexcept {
  auto& all = looks();
  thread_end.touch();
  CallNote* note = take_note(all, static_cast<int>(::syscall(SYS_gettid)));
  if (note == nullptr) return all.nobodys;
  note->scope.store(nullptr);
  return *(own_note = note);
}

void look_for_hangs() noexcept {
  auto& all = looks();
  const HostNanoseconds now = monotonic_now();
  HostNanoseconds due = all.next.load(std::memory_order_relaxed);
  if (now < due || !all.next.compare_exchange_strong(due, kLooking)) return;
  bool said = false;
  for (CallNote* each = all.newest.load(); each != nullptr && !said; each = each->next) {
    said = hangs(*each, now, all.limit);
  }
  all.next.store(said ? kNever : now + all.limit / 10);
}

void start_looking() noexcept {
  auto& all = looks();
  if (all.has_thread.exchange(true)) return;
  try {
    start_service_thread("gpuprof-hangs", [&all] {
      while (all.next.load() != kNever) {
        std::this_thread::sleep_for(std::chrono::nanoseconds(all.limit / 10));
        look_for_hangs();
      }
    }).detach();
  } catch (const std::exception&) {  // no thread can be made: the other looks remain
  }
}

}  // namespace gpuprof::driver
