/* A library for LD_PRELOAD that shifts the clocks of one process, as those of another host would be
   shifted: CLOCK_MONOTONIC by SHIFT_MONOTONIC_NS, CLOCK_REALTIME by SHIFT_REALTIME_NS. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

long long monotonic_shift; /* a program may go on shifting it */
static long long realtime_shift;

static long long shift_of(const char* variable) {
  const char* text = getenv(variable);
  return text ? atoll(text) : 0;
}

__attribute__((constructor)) static void read_shifts(void) {
  monotonic_shift = shift_of("SHIFT_MONOTONIC_NS");
  realtime_shift = shift_of("SHIFT_REALTIME_NS");
}

#ifdef __cplusplus
extern "C"
#endif
    int
    clock_gettime(clockid_t clock, struct timespec* out) {
  if (syscall(SYS_clock_gettime, clock, out) != 0) return -1;
  long long shift = 0;
  if (clock == CLOCK_MONOTONIC) shift = monotonic_shift;
  if (clock == CLOCK_REALTIME) shift = realtime_shift;
  const long long time = out->tv_sec * 1000000000LL + out->tv_nsec + shift;
  out->tv_sec = time / 1000000000LL;
  out->tv_nsec = time % 1000000000LL;
  return 0;
}
