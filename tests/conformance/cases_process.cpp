// A forked child, and the end of the process.
#include <unistd.h>

#include <cstdlib>

#include "child.hpp"
#include "world.hpp"

namespace conformance {
namespace {

void after_fork() {
  World w(false);
  H s = w.s, e = w.e;
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

void fork_calls() {
  World w;
  H s = w.s, e = w.e, f = w.f, g = nullptr, x = nullptr;
  w.make_graph(&g, &x);
  Q(cuGraphLaunch(x, s));
  Q(cuCtxSynchronize());
  H h = nullptr;
  void* entry = nullptr;
  float ms = 0;
  int v = 0;
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
  child_row("primaryRelease", [&] { return cuDevicePrimaryCtxRelease_v2(w.dev); });
  child_row("getProcAddress",
            [&] { return cuGetProcAddress_v2("cuInit", &entry, 12000, 0, nullptr); });
  P(cuEventQuery(e));
  P(cuGraphLaunch(x, s));
  P(cuStreamSynchronize(s));
}

void fork_more_calls() {
  World w(false);
  H s = w.s, e = w.e, f = w.f, h = nullptr, c = nullptr;
  Ptr d = 0;
  int m = 2, v = 0;
  Q(cuMemAlloc_v2(&d, 64));
  child_row("streamQuery", [&] { return cuStreamQuery(s); });
  child_row("streamGetCtx", [&] { return cuStreamGetCtx(s, &c); });
  child_row("streamCreate", [&] { return cuStreamCreate(&h, 1); });
  child_row("streamWaitEvent", [&] { return cuStreamWaitEvent(s, e, 0); });
  child_row("beginCapture", [&] { return cuStreamBeginCapture_v2(s, 1); });
  child_row("exchangeMode", [&] { return cuThreadExchangeStreamCaptureMode(&m); });
  child_row("recordWithFlags", [&] { return cuEventRecordWithFlags(f, s, 0); });
  child_row("ctxGetDevice", [&] { return cuCtxGetDevice(&v); });
  child_row("ctxSetCurrent", [&] { return cuCtxSetCurrent(w.ctx); });
  child_row("ctxSynchronize", [&] { return cuCtxSynchronize(); });
  child_row("memAlloc", [&] { return cuMemAlloc_v2(&d, 64); });
  child_row("memFree", [&] { return cuMemFree_v2(d); });
}

void fork_exit_child() {
  World w(false);
  H s = w.s;
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

void at_exit() {
  std::atexit(late_handler);
  Q(cuInit(0));
  std::atexit(early_handler);
  World w(false);
  ge = w.e;
  gs = w.s;
}

}  // namespace

const Case kProcessCases[] = {
    {"after_fork", after_fork},
    {"fork_calls", fork_calls},
    {"fork_more_calls", fork_more_calls},
    {"fork_exit_child", fork_exit_child},
    {"at_exit", at_exit},
    {nullptr, nullptr},
};

}  // namespace conformance
