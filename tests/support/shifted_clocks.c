/* A library for LD_PRELOAD that shifts the clocks of one process, as those of another host would be
   shifted: by what the program writes to its two variables, in nanoseconds. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

long long monotonic_shift;
long long realtime_shift;

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
