// Events: their states, their times, and what destroying them or their context leaves.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "world.hpp"

namespace conformance {
namespace {

CASE(foreign_thread_no_ctx, World) {
  H e2 = nullptr;
  Q(cuEventCreate(&e2, 0));
  std::thread([&] {
    H c = nullptr, g = nullptr, x = nullptr;
    float ms = -1;
    P(cuCtxGetCurrent(&c));
    std::printf("  current in new thread %s\n", c == nullptr ? "NULL" : "set");
    P(cuEventRecord(e, s));
    P(cuEventRecord(e2, nullptr));
    nap();
    P(cuEventQuery(e));
    P(cuEventSynchronize(e));
    P(cuEventElapsedTime_v2(&ms, e, e));
    P(cuStreamSynchronize(s));
    P(cuStreamBeginCapture_v2(s, 1));
    P(cuEventRecordWithFlags(e2, s, 1));
    g = end(s);
    P(cuGraphInstantiateWithFlags(&x, g, 0));
    P(cuGraphLaunch(x, s));
    P(cuEventDestroy_v2(e));
  }).join();
}

void back_to_back(H s, H a, H b) {
  constexpr int kPairs = 100;
  float first[10] = {};
  float least = 1e9F;
  bool in_steps = true;
  for (int i = 0; i < kPairs; ++i) {
    float ms = 0;
    Q(cuEventRecord(a, s));
    Q(cuEventRecord(b, s));
    Q(cuEventSynchronize(b));
    Q(cuEventElapsedTime_v2(&ms, a, b));
    if (i < 10) first[i] = ms;
    least = std::min(least, ms);
    in_steps = in_steps && std::lround(ms * 1e6F) % 32 == 0;
  }
  std::printf("  back-to-back min=%.9g ms first10:", static_cast<double>(least));
  for (const float ms : first) std::printf(" %ld", std::lround(ms * 1e6F));
  std::printf(" ns\n  all multiples of 32ns: %d\n", in_steps ? 1 : 0);
}

void compare_versions(H a, H b) {
  float one = 0, two = 0;
  Q(cuEventElapsedTime(&one, a, b));
  Q(cuEventElapsedTime_v2(&two, a, b));
  std::printf("  v1 vs v2: %.9g %.9g\n", static_cast<double>(one), static_cast<double>(two));
}

CASE(events, World) {
  H a = nullptr, b = nullptr, n = nullptr, t = nullptr;
  Q(cuEventCreate(&a, 0));
  Q(cuEventCreate(&b, 0));
  Q(cuEventCreate(&n, 2));
  Q(cuEventCreate(&t, 0));
  Q(spin(s, 10));
  Q(cuStreamSynchronize(s));
  P(cuEventQuery(a));
  P(cuEventSynchronize(a));
  P(cuEventElapsedTime_v2(&ms, a, b));
  P(cuEventElapsedTime(&ms, a, b));
  Q(cuEventRecord(a, s));
  Q(spin(s, 20000));
  Q(cuEventRecord(b, s));
  Q(cuEventRecord(n, s));
  Q(cuStreamWaitEvent(w.t, b, 0));
  Q(cuEventRecord(t, w.t));
  P(cuEventQuery(b));
  P(cuEventElapsedTime_v2(&ms, a, b));
  P(cuEventElapsedTime(&ms, a, b));
  P(cuEventSynchronize(b));
  P(cuEventElapsedTime_v2(&ms, a, b));
  std::printf("  ms=%.9g\n", static_cast<double>(ms));
  P(cuEventElapsedTime_v2(&ms, b, a));
  std::printf("  reversed ms=%.9g\n", static_cast<double>(ms));
  P(cuEventElapsedTime_v2(&ms, a, a));
  std::printf("  same ms=%.9g\n", static_cast<double>(ms));
  Q(cuCtxSynchronize());
  P(cuEventElapsedTime_v2(&ms, a, n));
  P(cuEventElapsedTime_v2(&ms, n, b));
  P(cuEventElapsedTime_v2(&ms, a, t));
  std::printf("  cross stream ms=%.9g\n", static_cast<double>(ms));
  P(cuEventElapsedTime_v2(&ms, a, nullptr));
  P(cuEventElapsedTime_v2(nullptr, a, b));
  P(cuEventRecordWithFlags(a, s, 1));
  P(cuEventRecordWithFlags(a, s, 8));
  P(cuEventCreate(&t, 0x80));
  P(cuEventDestroy_v2(nullptr));
  P(cuEventRecord(nullptr, s));
  back_to_back(s, a, b);
  compare_versions(a, b);
}

CASE(event_rerecord_pending, World) {
  H a = e, b = f;
  Q(spin(s, 20000));
  Q(cuEventRecord(b, s));
  P(cuEventQuery(b));
  P(cuEventElapsedTime_v2(&ms, a, b));
  P(cuEventDestroy_v2(b));
  P(cuStreamDestroy_v2(s));
  P(cuCtxSynchronize());
}

CASE(event_double_destroy, Unloaded) {
  H a = e;
  P(cuEventDestroy_v2(a));
  cuEventDestroy_v2(a);
}

CASE(event_use_after_destroy, Unloaded) {
  Q(cuEventDestroy_v2(e));
  cuEventQuery(e);
}

CASE(event_garbage_handle, Unloaded) { cuEventQuery(reinterpret_cast<H>(std::uintptr_t{0x1234})); }

CASE(stream_use_after_destroy, Unloaded) {
  Q(cuStreamDestroy_v2(s));
  cuStreamQuery(s);
}

CASE(event_other_context, Unloaded) {
  H c2 = nullptr, e1 = e, s1 = s, e2 = nullptr, s2 = nullptr;
  P(cuCtxCreate_v2(&c2, 0, dev));
  Q(cuStreamCreate(&s2, 1));
  Q(cuEventCreate(&e2, 0));
  P(cuEventRecord(e1, s2));
  P(cuEventRecord(e1, nullptr));
  P(cuEventRecord(e2, s2));
  P(cuEventRecord(e1, s1));
  Q(cuStreamSynchronize(s2));
  P(cuEventElapsedTime_v2(&ms, e1, e2));
  P(cuEventQuery(e2));
  P(cuStreamQuery(s2));
  P(cuStreamWaitEvent(s1, e2, 0));
  P(cuEventDestroy_v2(e2));
  P(cuCtxDestroy_v2(c2));
}

// Which of these is the first to crash depends on what became of the stream's memory.
void touch_dead_stream(H stream) {
  cuStreamQuery(stream);
  cuStreamSynchronize(stream);
  cuStreamDestroy_v2(stream);
}

CASE(event_after_ctx_destroy, Unloaded) {
  H c2 = nullptr, e2 = nullptr, s2 = nullptr;
  Q(cuCtxCreate_v2(&c2, 0, dev));
  Q(cuStreamCreate(&s2, 1));
  Q(cuEventCreate(&e2, 0));
  Q(cuEventRecord(e2, s2));
  Q(cuStreamSynchronize(s2));
  P(cuCtxDestroy_v2(c2));
  P(cuEventQuery(e2));
  P(cuEventDestroy_v2(e2));
  touch_dead_stream(s2);
}

CASE(event_after_primary_reset, Unloaded) {
  P(cuDevicePrimaryCtxReset_v2(dev));
  P(cuEventQuery(e));
  P(cuEventDestroy_v2(e));
  touch_dead_stream(s);
}

CASE(event_after_primary_release, Unloaded) {
  P(cuDevicePrimaryCtxRelease_v2(dev));
  P(cuEventQuery(e));
  P(cuEventDestroy_v2(e));
}

CASE(elapsed_long, World) {
  float one = 0, two = 0;
  Q(cuEventRecord(e, s));
  Q(spin(s, 3000000));
  Q(cuEventRecord(f, s));
  Q(cuEventSynchronize(f));
  Q(cuEventElapsedTime(&one, e, f));
  Q(cuEventElapsedTime_v2(&two, e, f));
  const float spacing = std::nextafter(one, 1e9F) - one;
  std::printf("  v1 %.9g v2 %.9g ms (float spacing %.6f ms)\n", static_cast<double>(one),
              static_cast<double>(two), static_cast<double>(spacing));
}

void nothing(void* /*unused*/) {}

CASE(host_function, Initialised) {
  H s = nullptr;
  Q(cuStreamCreate(&s, 1));
  P(cuLaunchHostFunc(s, nothing, nullptr));
  P(cuLaunchHostFunc(s, nullptr, nullptr));
  P(cuStreamSynchronize(s));
}

CASE(ids, Initialised) {
  H s = nullptr, t = nullptr, e = nullptr;
  unsigned long long a = 0, b = 0, z = 0;
  Q(cuStreamCreate(&s, 1));
  Q(cuStreamCreate(&t, 1));
  Q(cuEventCreate(&e, 0));
  P(cuStreamGetId(s, &a));
  P(cuStreamGetId(t, &b));
  P(cuStreamGetId(nullptr, &z));
  std::printf("  ids %llu %llu null=%llu\n", a, b, z);
  P(cuStreamGetCtx(s, &c));
  std::printf("  ctx same %d\n", c == ctx ? 1 : 0);
  const H old_stream = s, old_event = e;
  Q(cuStreamDestroy_v2(s));
  Q(cuStreamCreate(&s, 1));
  std::printf("  handle reused after destroy: %d\n", s == old_stream ? 1 : 0);
  Q(cuStreamGetId(s, &a));
  std::printf("  new id %llu\n", a);
  Q(cuEventDestroy_v2(e));
  Q(cuEventCreate(&e, 0));
  std::printf("  event handle reused: %d\n", e == old_event ? 1 : 0);
}

}  // namespace

}  // namespace conformance
