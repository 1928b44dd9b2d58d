// A forked child, and the end of the process.
#include <unistd.h>

#include <cstdlib>

#include "child.hpp"
#include "world.hpp"

namespace conformance {
namespace {

CASE(after_fork, Unloaded) {
  const int outcome = in_child([&] {
    int v = 0;
    H c = nullptr;
    P(cuDriverGetVersion(&v));
    P(cuInit(0));
    P(cuDeviceGetCount(&v));
    P(cuCtxGetCurrent(&c));
    P(cuEventQuery(e));
    cuEventRecord(e, s);
  });
  std::printf("  child exit %d sig %d; parent:\n", WEXITSTATUS(outcome) * WIFEXITED(outcome),
              WIFSIGNALED(outcome) ? WTERMSIG(outcome) : 0);
  P(cuEventQuery(e));
  P(cuEventRecord(e, s));
  P(cuStreamSynchronize(s));
}

CASE(fork_calls, World) {
  make_graph(&g, &x);
  Q(cuGraphLaunch(x, s));
  Q(cuCtxSynchronize());
  void* entry = nullptr;
  float ms = 0;
  child_row("eventElapsed", [&] { return cuEventElapsedTime_v2(&ms, e, f); });
  child_row("eventSync", [&] { return cuEventSynchronize(e); });
  child_row("eventDestroy", [&] { return cuEventDestroy_v2(f); });
  child_row("streamIsCapturing", [&] { return cuStreamIsCapturing(s, &v); });
  child_row("streamSync", [&] { return cuStreamSynchronize(s); });
  child_row("streamDestroy", [&] { return cuStreamDestroy_v2(s); });
  child_row("eventCreate", [&] { return cuEventCreate(&h, 0); });
  child_row("graphExecDestroy", [&] { return cuGraphExecDestroy(x); });
  child_row("graphDestroy", [&] { return cuGraphDestroy(g); });
  child_row("graphLaunch", [&] { return cuGraphLaunch(x, s); });
  child_row("primaryRelease", [&] { return cuDevicePrimaryCtxRelease_v2(dev); });
  child_row("getProcAddress",
            [&] { return cuGetProcAddress_v2("cuInit", &entry, 12000, 0, nullptr); });
  P(cuEventQuery(e));
  launch_and_wait(x, s);
}

CASE(fork_more_calls, Unloaded) {
  Q(cuMemAlloc_v2(&d, 64));
  child_row("streamQuery", [&] { return cuStreamQuery(s); });
  child_row("streamGetCtx", [&] { return cuStreamGetCtx(s, &c); });
  child_row("streamCreate", [&] { return cuStreamCreate(&h, 1); });
  child_row("streamWaitEvent", [&] { return cuStreamWaitEvent(s, e, 0); });
  child_row("beginCapture", [&] { return cuStreamBeginCapture_v2(s, 1); });
  child_row("exchangeMode", [&] { return cuThreadExchangeStreamCaptureMode(&m); });
  child_row("recordWithFlags", [&] { return cuEventRecordWithFlags(f, s, 0); });
  child_row("ctxGetDevice", [&] { return cuCtxGetDevice(&v); });
  child_row("ctxSetCurrent", [&] { return cuCtxSetCurrent(ctx); });
  child_row("ctxSynchronize", [&] { return cuCtxSynchronize(); });
  child_row("memAlloc", [&] { return cuMemAlloc_v2(&d, 64); });
  child_row("memFree", [&] { return cuMemFree_v2(d); });
}

CASE(fork_exit_child, Unloaded) {
  const int outcome = in_child([] { std::exit(3); });
  std::printf("  child normal exit(): rc %d sig %d\n", WEXITSTATUS(outcome) * WIFEXITED(outcome),
              WIFSIGNALED(outcome) ? WTERMSIG(outcome) : 0);
  P(cuStreamSynchronize(s));
}

H ge = nullptr;
H gs = nullptr;

void early_handler() {
  std::printf("  early atexit (registered after cuInit):\n");
  P(cuEventQuery(ge));
  P(cuEventDestroy_v2(ge));
}

void late_handler() {
  int v = 0;
  std::printf("  late atexit (registered before cuInit):\n");
  P(cuEventQuery(ge));
  P(cuEventDestroy_v2(ge));
  P(cuStreamDestroy_v2(gs));
  P(cuDeviceGetCount(&v));
  P(cuInit(0));
}

// Destroyed after every exit handler; only the process of at_exit has events for it.
struct Last {
  ~Last() {
    if (ge == nullptr) return;
    std::printf("  static destructor in main program:\n");
    P(cuEventQuery(ge));
    P(cuEventDestroy_v2(ge));
  }
} last;

CASE(at_exit, Untouched) {
  std::atexit(late_handler);
  Q(cuInit(0));
  std::atexit(early_handler);
  World w(false);
  ge = w.e;
  gs = w.s;
}

}  // namespace

}  // namespace conformance
