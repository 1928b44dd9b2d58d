// Captures, and threads other than the one that began them; the relaxed mode as a guard.
#include <thread>

#include "world.hpp"

namespace conformance {
namespace {

template <typename Calls>
void on_another_thread(const World& w, Calls calls) {
  std::thread([&] {
    Q(cuCtxSetCurrent(w.ctx));
    calls();
  }).join();
}

CASE(cap_other_thread_alloc_global, World) {
  P(cuStreamBeginCapture_v2(s, 0));
  Q(spin(s, 10));
  on_another_thread(*this, [] {
    Ptr d = 0;
    P(cuMemAlloc_v2(&d, 256));
  });
  status(s);
  end(s);
}

CASE(cap_other_thread_evquery_global, World) {
  P(cuStreamBeginCapture_v2(s, 0));
  Q(spin(s, 10));
  on_another_thread(*this, [&] {
    Ptr d = 0;
    float ms = -1;
    int m = 2;
    P(cuEventQuery(e));
    P(cuEventSynchronize(e));
    P(cuEventElapsedTime_v2(&ms, e, e));
    P(cuStreamSynchronize(t));
    P(cuEventDestroy_v2(e));
    P(cuThreadExchangeStreamCaptureMode(&m));
    std::printf("  old mode %d\n", m);
    P(cuMemAlloc_v2(&d, 256));
  });
  status(s);
  end(s);
}

CASE(cap_other_thread_alloc_tl, World) {
  P(cuStreamBeginCapture_v2(s, 1));
  Q(spin(s, 10));
  on_another_thread(*this, [] {
    Ptr d = 0;
    P(cuMemAlloc_v2(&d, 256));
    P(cuMemFree_v2(d));
    P(cuCtxSynchronize());
  });
  status(s);
  end(s);
}

CASE(cap_end_wrong_thread, World) {
  P(cuStreamBeginCapture_v2(s, 1));
  Q(spin(s, 10));
  on_another_thread(*this, [&] {
    end(s);
    status(s);
  });
  status(s);
  end(s);
  status(s);
}

CASE(cap_end_wrong_thread_relaxed, World) {
  P(cuStreamBeginCapture_v2(s, 2));
  Q(spin(s, 10));
  on_another_thread(*this, [&] { nodes(end(s)); });
}

void two_captures(const World& w, int mode) {
  H s = w.s;
  std::printf("  mode %d\n", mode);
  P(cuStreamBeginCapture_v2(s, mode));
  Q(spin(s, 10));
  on_another_thread(w, [&] {
    H t = w.t;
    P(cuStreamBeginCapture_v2(t, mode));
    Q(spin(t, 10));
    nodes(end(t));
  });
  nodes(end(s));
}

CASE(two_captures_two_threads, World) {
  for (int mode = 0; mode <= 2; ++mode) two_captures(*this, mode);
}

CASE(capturing_thread_exits, World) {
  on_another_thread(*this, [&] {
    P(cuStreamBeginCapture_v2(s, 1));
    Q(spin(s, 10));
  });
  status(s);
  end(s);
  status(s);
  P(cuMemAlloc_v2(&d, 64));
  on_another_thread(*this, [&] {
    P(cuStreamBeginCapture_v2(s, 0));
    Q(spin(s, 10));
  });
  P(cuMemAlloc_v2(&d, 64));
  status(s);
  end(s);
  P(cuMemAlloc_v2(&d, 64));
}

// What a careful library does to poll and to free while somebody may be capturing.
void guarded(H t, H e, H x, Ptr d) {
  int m = 2;
  P(cuThreadExchangeStreamCaptureMode(&m));
  std::printf("  old %d\n", m);
  P(cuEventQuery(e));
  P(cuEventSynchronize(e));
  P(cuStreamQuery(t));
  P(cuStreamSynchronize(t));
  P(cuMemFree_v2(d));
  P(cuGraphExecDestroy(x));
  P(cuEventDestroy_v2(e));
  P(cuThreadExchangeStreamCaptureMode(&m));
}

template <typename Where>
void guard(const char* begin, int mode, Where where) {
  World w;
  H g = nullptr, x = nullptr;
  Ptr d = 0;
  Q(cuMemAlloc_v2(&d, 64));
  w.make_graph(&g, &x);
  row(begin, cuStreamBeginCapture_v2(w.s, mode));
  Q(spin(w.s, 10));
  where(w, [&] { guarded(w.t, w.e, x, d); });
  status(w.s);
  nodes(end(w.s));
}

const auto kHere = [](const World&, auto calls) { calls(); };
const auto kOnAnotherThread = [](const World& w, auto calls) { on_another_thread(w, calls); };

CASE(guard_same_thread_tl, Untouched) { guard("cuStreamBeginCapture_v2(s,1)", 1, kHere); }
CASE(guard_same_thread_global, Untouched) { guard("cuStreamBeginCapture_v2(s,0)", 0, kHere); }
CASE(guard_other_thread_global, Untouched) {
  guard("cuStreamBeginCapture_v2(s,0)", 0, kOnAnotherThread);
}

CASE(guard_begin_inside, World) {
  P(cuThreadExchangeStreamCaptureMode(&m));
  std::printf("  old %d\n", m);
  P(cuStreamBeginCapture_v2(s, 0));
  Q(spin(s, 10));
  P(cuMemAlloc_v2(&d, 64));
  status(s);
  nodes(end(s));
}

CASE(other_thread_unsafe_names_global, World) {
  P(cuStreamBeginCapture_v2(s, 0));
  Q(spin(s, 10));
  on_another_thread(*this, [&] {
    H h = nullptr;
    float ms = -1;
    P(cuEventElapsedTime_v2(&ms, e, f));
    P(cuEventRecord(e, t));
    P(spin(t, 10));
    P(cuEventCreate(&h, 0));
    P(cuEventDestroy_v2(h));
    P(cuStreamCreate(&h, 1));
    P(cuStreamDestroy_v2(h));
  });
  status(s);
  nodes(end(s));
}

}  // namespace

}  // namespace conformance
