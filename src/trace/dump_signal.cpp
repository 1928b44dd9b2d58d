#include "trace/dump_signal.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <string>
#include <system_error>

#include "driver/process.hpp"

namespace gpuprof::trace {
namespace {

constexpr int kSignals = 65;

struct Watched {
  std::atomic<std::uint64_t> seen{0};
  std::atomic<std::uint64_t> answers{0};
  std::atomic<std::uint64_t> users{0};
  std::atomic<pid_t> process{0};  // whose users they are
  struct sigaction previous{};    // what was there before; set before the handler is
  bool is_handled = false;
};
std::array<Watched, kSignals> watched;
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// Held while handlers are put in and taken out; not by them.
struct Changes : driver::ForkMutex {};
Changes& changes() { return driver::immortal<Changes>(); }

Watched& of(int number) noexcept { return watched[static_cast<std::size_t>(number)]; }

bool ends_process(int number) noexcept {
  return number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT ||
         number == SIGALRM || number == SIGPIPE || number == SIGVTALRM || number == SIGPROF ||
         number == SIGXCPU || number == SIGXFSZ;
}

bool has_handler(const struct sigaction& action) noexcept {
  if ((action.sa_flags & SA_SIGINFO) != 0) return action.sa_sigaction != nullptr;
  return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
}

bool is_default(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
}

// From a handler: takes effect when it returns. From elsewhere: at once.
void end_process_by(int number) noexcept {
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  ::sigaction(number, &action, nullptr);
  ::kill(::getpid(), number);
}

void handle(int number, siginfo_t* info, void* context) {
  const int saved = errno;
  Watched& signal = of(number);
  const bool ours = signal.process.load() == ::getpid() && signal.users.load() != 0;
  if (ours) signal.seen.fetch_add(1);
  const struct sigaction& previous = signal.previous;
  if (has_handler(previous)) {
    if ((previous.sa_flags & SA_SIGINFO) != 0) {
      previous.sa_sigaction(number, info, context);
    } else {
      previous.sa_handler(number);
    }
  } else if (!ours && is_default(previous) && ends_process(number)) {
    end_process_by(number);
  }
  errno = saved;
}

bool is_installed(int number) noexcept {
  struct sigaction now{};
  return ::sigaction(number, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) != 0 &&
         now.sa_sigaction == &handle;
}

[[noreturn]] void refuse_signal(int number) {
  throw std::system_error(errno, std::generic_category(),
                          "cannot handle signal " + std::to_string(number));
}

// Once: where the program has put a handler over it, that may call it. A previous handler of Python
// needs system calls to be interrupted; without one, nothing should.
void install(int number) {
  Watched& signal = of(number);
  if (signal.is_handled) return;
  struct sigaction& previous = signal.previous;
  if (::sigaction(number, nullptr, &previous) != 0) refuse_signal(number);  // the handler reads it
  struct sigaction action{};
  action.sa_sigaction = &handle;
  action.sa_mask = previous.sa_mask;
  const bool restarts = !has_handler(previous) || (previous.sa_flags & SA_RESTART) != 0;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (restarts ? SA_RESTART : 0);
  if (::sigaction(number, &action, nullptr) != 0) refuse_signal(number);
  signal.is_handled = true;
}

}  // namespace

bool can_watch_signal(int number) noexcept {
  if (number < 1 || number >= kSignals) return false;
  if (number == SIGKILL || number == SIGSTOP || number == SIGCHLD) return false;
  return number != SIGSEGV && number != SIGBUS && number != SIGFPE && number != SIGILL &&
         number != SIGABRT && number != SIGTRAP && number != SIGSYS;
}

void watch_signal(int number) {
  const std::lock_guard lock(changes());
  Watched& signal = of(number);
  if (signal.process.load() != ::getpid()) {  // the users are the parent's
    signal.users.store(0);
    signal.seen.store(0);
    signal.process.store(::getpid());
  }
  install(number);
  signal.answers.store(0);
  signal.users.fetch_add(1);
}

// One that the program has put a handler over has to stay: that one may call it.
void unwatch_signal(int number) noexcept {
  const std::lock_guard lock(changes());
  Watched& signal = of(number);
  if (signal.users.fetch_sub(1) != 1) return;
  if (!is_installed(number)) return;
  signal.is_handled = ::sigaction(number, &signal.previous, nullptr) != 0;
}

std::uint64_t signals_seen(int number) noexcept { return of(number).seen.load(); }

void answer_signal(int number) noexcept {
  Watched& signal = of(number);
  if (!is_default(signal.previous) || !ends_process(number)) return;
  if (signal.answers.fetch_add(1) + 1 >= signal.users.load()) end_process_by(number);
}

}  // namespace gpuprof::trace
