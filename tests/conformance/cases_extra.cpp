// What the first recordings do not ask: calls that the fake driver answers all the same.
#include <algorithm>
#include <thread>
#include <vector>

#include "log.hpp"
#include "world.hpp"

namespace conformance {
namespace {

CASE(cap_relaxed_self, World) {
  P(cuStreamBeginCapture_v2(s, 2));
  Q(spin(s, 10));
  P(cuStreamQuery(s));
  status(s);
  end(s);
  P(cuStreamBeginCapture_v2(s, 2));
  P(cuStreamSynchronize(s));
  end(s);
  P(cuStreamBeginCapture_v2(s, 2));
  P(cuEventRecord(e, s));
  P(cuEventQuery(e));
  end(s);
}

CASE(guard_self, World) {
  P(cuThreadExchangeStreamCaptureMode(&m));
  P(cuStreamBeginCapture_v2(s, 1));
  P(cuStreamQuery(s));
  status(s);
  end(s);
  P(cuStreamBeginCapture_v2(u, 1));
  P(cuStreamQuery(nullptr));
  status(u);
  end(u);
  P(cuStreamBeginCapture_v2(u, 1));
  P(cuStreamSynchronize(nullptr));
  status(u);
  end(u);
}

CASE(cap_legacy_more, World) {
  int z = -1;
  P(cuStreamBeginCapture_v2(u, 2));
  P(cuStreamQuery(nullptr));
  status(u);
  end(u);
  P(cuStreamBeginCapture_v2(u, 2));
  P(cuStreamGetCaptureInfo_v2(nullptr, &z, nullptr, nullptr, nullptr, nullptr));
  status(u);
  P(spin(nullptr, 10));
  status(u);
  P(spin(nullptr, 10));
  end(u);
  P(cuStreamBeginCapture_v2(u, 2));
  P(cuStreamWaitEvent(nullptr, e, 0));
  status(u);
  end(u);
  P(cuStreamBeginCapture_v2(w.s, 2));
  P(cuEventRecord(e, w.s));
  P(cuStreamWaitEvent(nullptr, e, 0));
  status(s);
  end(s);
}

CASE(cap_fork_without_work, World) {
  P(cuStreamBeginCapture_v2(s, 0));
  Q(spin(s, 10));
  P(cuEventRecord(e, s));
  P(cuStreamWaitEvent(t, e, 0));
  nodes(end(s));
  P(cuStreamBeginCapture_v2(s, 0));
  P(cuEventRecord(e, s));
  P(cuStreamWaitEvent(t, e, 0));
  nodes(end(s));
}

CASE(cap_invalid_forks, World) {
  P(cuStreamBeginCapture_v2(s, 0));
  P(cuEventRecord(e, s));
  P(cuStreamWaitEvent(t, e, 0));
  P(cuStreamQuery(s));
  P(cuStreamWaitEvent(u, e, 0));
  status(u);
  P(cuEventQuery(e));
  P(cuStreamWaitEvent(s, e, 0));
  end(t);
  status(t);
  end(s);
  status(t);
}

CASE(cap_stale_in_another, World) {
  P(cuStreamBeginCapture_v2(s, 0));
  P(cuEventRecord(e, s));
  end(s);
  P(cuStreamBeginCapture_v2(t, 0));
  P(cuEventElapsedTime_v2(&ms, e, f));
  P(cuEventQuery(e));
  status(t);
  P(cuStreamWaitEvent(t, e, 0));
  status(t);
  P(cuEventRecord(f, t));
  end(t);
  P(cuStreamBeginCapture_v2(t, 0));
  P(cuEventRecord(f, t));
  P(cuMemFree_v2(0));
  status(t);
  P(cuEventElapsedTime_v2(&ms, f, f));
  P(cuEventRecord(f, s));
  status(t);
  end(t);
}

CASE(log_of_refusals, World) {
  unsigned from = 0;
  Q(cuLogsCurrent(&from, 0));
  P(cuStreamBeginCapture_v2(s, 1));
  P(cuEventRecord(e, s));
  P(cuEventQuery(e));
  P(cuMemAlloc_v2(&d, 64));
  end(s);
  print_log(from);
  Q(cuLogsCurrent(&from, 0));
  P(cuEventQuery(nullptr));
  print_log(from);
  print_log(from);
}

CASE(cap_nodes, World) {
  Q(cuMemAlloc_v2(&d, 256));
  P(cuStreamBeginCapture_v2(s, 1));
  P(cuMemsetD32Async(d, 7, 16, s));
  P(cuStreamWaitValue32_v2(s, d, 7, 1));
  P(cuStreamWriteValue32_v2(s, d, 8, 0));
  P(cuStreamWaitEvent(s, e, 1));
  P(cuEventRecordWithFlags(f, s, 1));
  nodes(end(s));
}

CASE(cap_host_memory, World) {
  void* p = nullptr;
  P(cuStreamBeginCapture_v2(s, 1));
  P(cuMemHostAlloc(&p, 64, 0));
  end(s);
  P(cuMemHostAlloc(&p, 64, 0));
  P(cuStreamBeginCapture_v2(s, 1));
  P(cuMemFreeHost(p));
  end(s);
  P(cuMemFreeHost(p));
}

CASE(cap_relaxed_graphs, World) {
  H x2 = nullptr;
  make_graph(&g, &x);
  P(cuStreamBeginCapture_v2(s, 2));
  P(cuGraphInstantiateWithFlags(&x2, g, 0));
  P(cuGraphUpload(x, s));
  P(cuGraphExecDestroy(x2));
  status(s);
  P(cuGraphLaunch(x, s));
  status(s);
  H made = end(s);
  if (made != nullptr) nodes(made);
}

CASE(primary_again, Unloaded) {
  H ctx = nullptr;
  unsigned flags = 0;
  int active = -1;
  unsigned long long first = 0, second = 0;
  P(cuCtxGetId(w.ctx, &first));
  P(cuDevicePrimaryCtxRelease_v2(dev));
  P(cuDevicePrimaryCtxRelease_v2(dev));
  P(cuDevicePrimaryCtxGetState(dev, &flags, &active));
  std::printf("  active %d\n", active);
  P(cuDevicePrimaryCtxRetain(&ctx, dev));
  std::printf("  same handle %d\n", ctx == w.ctx ? 1 : 0);
  P(cuCtxGetId(ctx, &second));
  std::printf("  same id %d\n", first == second ? 1 : 0);
  P(cuEventQuery(e));
  P(cuEventCreate(&e, 0));
  P(cuDevicePrimaryCtxReset_v2(dev));
  P(cuDevicePrimaryCtxGetState(dev, &flags, &active));
  std::printf("  active %d\n", active);
  P(cuDevicePrimaryCtxRelease_v2(dev));
}

CASE(dead_current_context, Unloaded) {
  Q(cuDevicePrimaryCtxRelease_v2(dev));
  P(cuCtxGetCurrent(&c));
  std::printf("  still current %d\n", c == ctx ? 1 : 0);
  P(cuCtxGetDevice(&v));
  P(cuCtxGetId(c, &id));
  P(cuCtxSynchronize());
  P(cuStreamCreate(&h, 1));
  P(cuStreamIsCapturing(nullptr, &v));
  P(cuEventRecord(e, nullptr));
  P(cuEventSynchronize(e));
  P(cuMemAlloc_v2(&d, 64));
  P(cuCtxPushCurrent_v2(c));
  P(cuCtxPopCurrent_v2(&c));
}

CASE(events_of_a_dead_context, Unloaded) {
  H c2 = nullptr, e2 = nullptr, s2 = nullptr;
  Q(cuCtxCreate_v2(&c2, 0, dev));
  Q(cuStreamCreate(&s2, 1));
  Q(cuEventCreate(&e2, 0));
  Q(cuEventRecord(e2, s2));
  Q(cuStreamSynchronize(s2));
  Q(cuGraphCreate(&g, 0));
  Q(cuGraphInstantiateWithFlags(&x, g, 0));
  P(cuCtxDestroy_v2(c2));
  P(cuEventElapsedTime_v2(&ms, e2, e2));
  P(cuEventElapsedTime_v2(&ms, e, e2));
  P(cuEventRecord(e2, s));
  P(cuStreamWaitEvent(s, e2, 0));
  P(cuEventSynchronize(e2));
  P(cuGraphExecDestroy(x));
  P(cuGraphDestroy(g));
  P(cuCtxSetCurrent(c2));
}

CASE(made_context, Initialised) {
  H now = nullptr;
  P(cuCtxGetId(nullptr, &id));
  P(cuCtxCreate_v2(&c, 0, 0));
  P(cuCtxDestroy_v2(c));
  P(cuCtxGetCurrent(&now));
  std::printf("  the one before is current %d\n", now == ctx ? 1 : 0);
  P(cuCtxDestroy_v2(w.ctx));
  P(cuCtxSetCurrent(nullptr));
  P(cuCtxPopCurrent_v2(&now));
  P(cuCtxSetCurrent(nullptr));
}

CASE(bad_arguments, Unloaded) {
  int m = 7;
  P(cuEventCreate(&h, 4));
  P(cuEventCreate(nullptr, 0));
  P(cuStreamCreate(&h, 2));
  P(cuStreamDestroy_v2(nullptr));
  P(cuStreamWaitEvent(s, nullptr, 0));
  P(cuStreamWaitEvent(s, e, 2));
  P(cuStreamIsCapturing(s, nullptr));
  P(cuThreadExchangeStreamCaptureMode(&m));
  P(cuMemAlloc_v2(&d, 0));
  P(cuMemAlloc_v2(&d, 1ULL << 50));
  P(cuMemFree_v2(0));
  P(cuMemFree_v2(64));
  P(cuMemFreeHost(nullptr));
  P(cuMemFreeHost(&v));
  P(cuDevicePrimaryCtxRetain(&h, 99));
  P(cuGraphCreate(&h, 1));
}

CASE(memory_on_foreign_thread, Unloaded) {
  void* p = nullptr;
  Q(cuMemAlloc_v2(&d, 64));
  Q(cuMemHostAlloc(&p, 64, 0));
  std::thread([&] {
    Ptr a = 0, b = 0;
    std::size_t free = 0, total = 0;
    P(cuMemAlloc_v2(&a, 64));
    P(cuMemHostGetDevicePointer_v2(&b, p, 0));
    P(cuMemGetInfo_v2(&free, &total));
    P(cuMemsetD32Async(d, 7, 16, s));
    P(cuMemFree_v2(d));
    P(cuMemFreeHost(p));
  }).join();
}

CASE(gate, World) {
  void* p = nullptr;
  Q(cuMemHostAlloc(&p, 64, 2));
  P(cuMemHostGetDevicePointer_v2(&d, p, 0));
  auto* word = static_cast<volatile std::uint32_t*>(p);
  *word = 0;
  P(cuStreamWaitValue32_v2(s, d, 1, 1));
  P(spin(s, 10));
  P(cuEventRecord(e, s));
  nap();
  P(cuEventQuery(e));
  P(cuStreamQuery(t));
  *word = 1;
  P(cuEventSynchronize(e));
  P(cuStreamWriteValue32_v2(s, d, 5, 0));
  P(cuStreamSynchronize(s));
  std::printf("  word %u\n", *word);
  P(cuMemsetD32Async(d, 9, 4, s));
  P(cuStreamSynchronize(s));
  std::printf("  word %u\n", *word);
  P(cuStreamWaitValue32_v2(s, d + 1, 1, 0));
  P(cuMemsetD32Async(d + 2, 9, 4, s));
}

CASE(sticky_the_rest, World) {
  int active = 0;
  unsigned flags = 0;
  std::size_t a = 0, b = 0;
  void *p = nullptr, *p2 = nullptr;
  Q(cuMemAlloc_v2(&d, 64));
  Q(cuMemHostAlloc(&p, 64, 0));
  Q(boom(s));
  P(cuStreamSynchronize(s));
  P(cuStreamGetCtx(t, &c));
  P(cuStreamGetId(t, &id));
  P(cuCtxGetId(w.ctx, &id));
  P(cuThreadExchangeStreamCaptureMode(&m));
  P(cuGraphCreate(&h, 0));
  P(cuEventRecordWithFlags(e, t, 1));
  P(cuStreamWaitEvent(t, e, 0));
  P(cuStreamGetCaptureInfo_v2(t, &v, &id, nullptr, nullptr, nullptr));
  P(cuDevicePrimaryCtxGetState(w.dev, &flags, &active));
  P(cuCtxSetCurrent(w.ctx));
  P(cuCtxPushCurrent_v2(w.ctx));
  P(cuCtxPopCurrent_v2(&c));
  P(cuMemGetInfo_v2(&a, &b));
  P(cuMemsetD32Async(d, 7, 16, t));
  P(cuStreamWaitValue32_v2(t, d, 7, 1));
  P(cuMemHostAlloc(&p2, 64, 0));
  P(cuMemHostGetDevicePointer_v2(&d, p, 0));
  P(cuMemFreeHost(p));
  P(cuMemFree_v2(d));
  P(cuStreamDestroy_v2(t));
  P(cuStreamDestroy_v2(u));
  P(cuEventQuery(nullptr));
  P(cuDevicePrimaryCtxRelease_v2(w.dev));
  P(cuDevicePrimaryCtxRetain(&h, w.dev));
}

}  // namespace

}  // namespace conformance
