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

void set_callgrind_counting(bool on) noexcept {
  // The numbers of valgrind/callgrind.h. Valgrind knows a request by instructions that do nothing:
  // rotations by 128 bits in all, and an exchange of a register with itself.
  constexpr std::uint64_t kCallgrind = std::uint64_t{'C'} << 24 | std::uint64_t{'T'} << 16;
  volatile std::uint64_t request[6] = {kCallgrind + (on ? 4 : 5), 0, 0, 0, 0, 0};
#if defined(__x86_64__)
  std::uint64_t answer = 0;
  asm volatile(
      "rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi; xchgq %%rbx, %%rbx"
      : "=d"(answer)
      : "a"(&request[0]), "0"(answer)
      : "cc", "memory");
#elif defined(__aarch64__)
  asm volatile(
      "mov x3, #0; mov x4, %0; ror x12, x12, #3; ror x12, x12, #13; ror x12, x12, #51; "
      "ror x12, x12, #61; orr x10, x10, x10"
      :
      : "r"(&request[0])
      : "cc", "memory", "x3", "x4");
#else
  static_cast<void>(request);
#endif
}

}  // namespace gpuprof::timing
