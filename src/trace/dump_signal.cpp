#include "trace/dump_signal.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <system_error>

namespace gpuprof::trace {
namespace {

constexpr int kSignals = 65;

struct Watched {
  std::atomic<std::uint64_t> seen{0};
  std::atomic<std::uint64_t> answers{0};
  std::atomic<std::uint64_t> users{0};
  std::atomic<pid_t> process{0};  // whose users they are
  struct sigaction previous{};    // set before the handler is
};
std::array<Watched, kSignals> watched;
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

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

// A handler that the program has put over this one, and that this one was then put over, calls it
// again.
__attribute__((tls_model("initial-exec"))) thread_local std::array<bool, kSignals> handling{};

void handle(int number, siginfo_t* info, void* context) {
  bool& inside = handling[static_cast<std::size_t>(number)];
  if (inside) return;
  inside = true;
  const int saved = errno;
  Watched& signal = watched[static_cast<std::size_t>(number)];
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
  inside = false;
}

bool is_installed(int number) noexcept {
  struct sigaction now{};
  return ::sigaction(number, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) != 0 &&
         now.sa_sigaction == &handle;
}

[[noreturn]] void fail(int number) {
  throw std::system_error(errno, std::generic_category(),
                          "cannot handle signal " + std::to_string(number));
}

// A previous handler of Python needs system calls to be interrupted; without one, nothing should.
void install(int number) {
  Watched& signal = watched[static_cast<std::size_t>(number)];
  if (is_installed(number)) return;
  // Before the handler is there, which reads it.
  if (::sigaction(number, nullptr, &signal.previous) != 0) fail(number);
  struct sigaction action{};
  action.sa_sigaction = &handle;
  action.sa_mask = signal.previous.sa_mask;
  const bool restarts =
      !has_handler(signal.previous) || (signal.previous.sa_flags & SA_RESTART) != 0;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (restarts ? SA_RESTART : 0);
  if (::sigaction(number, &action, nullptr) != 0) fail(number);
}

}  // namespace

bool can_watch_signal(int number) noexcept {
  if (number < 1 || number >= kSignals) return false;
  if (number == SIGKILL || number == SIGSTOP || number == SIGCHLD) return false;
  return number != SIGSEGV && number != SIGBUS && number != SIGFPE && number != SIGILL &&
         number != SIGABRT && number != SIGTRAP && number != SIGSYS;
}

void watch_signal(int number) {
  Watched& signal = watched[static_cast<std::size_t>(number)];
  if (signal.process.load() != ::getpid()) {  // the users are the parent's
    signal.users.store(0);
    signal.seen.store(0);
    signal.process.store(::getpid());
  }
  install(number);
  signal.answers.store(0);
  signal.users.fetch_add(1);
}

// If the program has put a handler over this one, it calls this one: it has to stay.
void unwatch_signal(int number) noexcept {
  Watched& signal = watched[static_cast<std::size_t>(number)];
  if (signal.users.fetch_sub(1) != 1 || !is_installed(number)) return;
  ::sigaction(number, &signal.previous, nullptr);
}

std::uint64_t signals_seen(int number) noexcept {
  return watched[static_cast<std::size_t>(number)].seen.load();
}

void answer_signal(int number) noexcept {
  Watched& signal = watched[static_cast<std::size_t>(number)];
  if (!is_default(signal.previous) || !ends_process(number)) return;
  if (signal.answers.fetch_add(1) + 1 >= signal.users.load()) end_process_by(number);
}

}  // namespace gpuprof::trace
