#include "timing/instructions.hpp"

#include <cerrno>

#ifdef __linux__
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace gpuprof::timing {

#ifdef __linux__

namespace {

constexpr int kThisThread = 0;
constexpr int kAnyCpu = -1;
constexpr int kNoGroup = -1;

perf_event_attr counter_attributes(CounterEvent event) {
  perf_event_attr attributes{};
  attributes.size = sizeof attributes;
  if (event == CounterEvent::kInstructions) {
    attributes.type = PERF_TYPE_HARDWARE;
    attributes.config = PERF_COUNT_HW_INSTRUCTIONS;
  } else {
    attributes.type = PERF_TYPE_SOFTWARE;
    attributes.config = PERF_COUNT_SW_TASK_CLOCK;
  }
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  attributes.inherit = 1;
  attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  return attributes;
}

}  // namespace

InstructionCounter::InstructionCounter(CounterEvent event) noexcept {
  perf_event_attr attributes = counter_attributes(event);
  const long opened = syscall(SYS_perf_event_open, &attributes, kThisThread, kAnyCpu, kNoGroup,
                              PERF_FLAG_FD_CLOEXEC);
  if (opened < 0) {
    error_ = errno;
  } else {
    file_ = static_cast<int>(opened);
  }
}

int InstructionCounter::read(CounterReading& reading) const noexcept {
  if (file_ < 0) return error_ != 0 ? error_ : EBADF;
  std::uint64_t words[3];
  ssize_t got = 0;
  do {
    got = ::read(file_, words, sizeof words);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return errno;
  if (got != sizeof words) return EIO;
  reading = {words[0], words[1], words[2]};
  return 0;
}

void InstructionCounter::close() noexcept {
  if (file_ >= 0) ::close(file_);
  file_ = -1;
}

#else

InstructionCounter::InstructionCounter(CounterEvent /*event*/) noexcept : error_(ENOSYS) {}

int InstructionCounter::read(CounterReading& /*reading*/) const noexcept { return error_; }

void InstructionCounter::close() noexcept {}

#endif

InstructionCounter::~InstructionCounter() { close(); }

}  // namespace gpuprof::timing
