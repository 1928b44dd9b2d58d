// A kernel that fails, and every call after it.
#include <unistd.h>

#include "world.hpp"

namespace conformance {
namespace {

constexpr unsigned kLongEnoughToFail = 50000;

// The failure comes while a capture refuses every call that could meet it.
CASE(sticky, World) {
  make_graph(&g, &x);
  P(cuStreamBeginCapture_v2(t, 1));
  P(boom(s));
  P(cuStreamSynchronize(s));
  P(cuStreamSynchronize(s));
  P(cuEventQuery(e));
  P(cuEventElapsedTime_v2(&ms, e, f));
  P(cuEventRecord(e, s));
  P(cuEventCreate(&h, 0));
  P(cuCtxGetCurrent(&h));
  P(cuCtxSynchronize());
  P(cuDriverGetVersion(&v));
  P(cuDeviceGetCount(&v));
  status(t);
  end(t);
  P(cuGraphLaunch(x, s));
  P(cuGraphExecDestroy(x));
  P(cuGraphDestroy(g));
  P(cuEventDestroy_v2(e));
  P(cuEventDestroy_v2(f));
  P(cuStreamDestroy_v2(s));
  P(cuMemAlloc_v2(&d, 64));
  P(cuDevicePrimaryCtxReset_v2(dev));
  P(cuDevicePrimaryCtxRetain(&h, dev));
  P(cuCtxSetCurrent(h));
  P(cuEventCreate(&h, 0));
}

void after_the_failure(World& w, H p, H q) {
  H e = w.e, f = w.f, t = w.t, h = nullptr;
  float ms = -1;
  P(cuEventSynchronize(q));
  P(cuEventQuery(q));
  P(cuEventQuery(e));
  P(cuStreamQuery(t));
  P(cuEventElapsedTime_v2(&ms, e, f));
  std::printf("  ms=%.6g\n", static_cast<double>(ms));
  P(cuEventElapsedTime_v2(&ms, p, q));
  P(cuEventRecord(e, t));
  P(cuEventCreate(&h, 0));
  P(cuStreamCreate(&h, 1));
}

CASE(sticky_plain, World) {
  H p = nullptr, q = nullptr;
  int dev = 0;
  Q(cuEventCreate(&p, 0));
  Q(cuEventCreate(&q, 0));
  make_graph(&g, &x);
  Q(cuCtxSynchronize());
  Q(cuEventRecord(p, s));
  P(boom(s));
  P(cuEventRecord(q, s));
  after_the_failure(*this, p, q);
  P(cuCtxGetCurrent(&h));
  P(cuCtxGetDevice(&dev));
  P(cuCtxSynchronize());
  P(cuDriverGetVersion(&v));
  P(cuDeviceGetCount(&v));
  P(cuStreamIsCapturing(s, &v));
  P(cuStreamBeginCapture_v2(t, 1));
  end(t);
  P(cuGraphInstantiateWithFlags(&h, g, 0));
  P(cuGraphLaunch(x, t));
  P(cuGraphExecDestroy(x));
  P(cuGraphDestroy(g));
  P(cuEventDestroy_v2(e));
  P(cuEventDestroy_v2(q));
  P(cuStreamDestroy_v2(s));
  P(cuMemAlloc_v2(&d, 64));
}

CASE(sticky_in_capture, World) {
  P(cuStreamBeginCapture_v2(t, 2));
  P(boom(s));
  usleep(kLongEnoughToFail);
  P(cuStreamQuery(s));
  status(t);
  P(spin(t, 100));
  end(t);
  P(cuStreamSynchronize(s));
}

}  // namespace

}  // namespace conformance
