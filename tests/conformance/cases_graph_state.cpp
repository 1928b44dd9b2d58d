// Calls about graphs and memory without a context, after a failed kernel and in a forked child.
#include <thread>

#include "child.hpp"
#include "world.hpp"

namespace conformance {
namespace {

// A graph of a kernel, an event record and a memset, and what can be done to it.
struct Scene : World {
  Scene() {
    Q(cuMemAlloc_v2(&d, 256));
    Q(cuStreamBeginCapture_v2(s, 1));
    Q(spin(s, 10));
    Q(cuEventRecordWithFlags(e, s, 1));
    Q(cuMemsetD32Async(d, 1, 4, s));
    Q(cuStreamEndCapture(s, &g));
    const auto all = nodes_of(g);
    kernel = all[0];
    record = all[1];
    set = all[2];
    Q(cuGraphInstantiateWithFlags(&x, g, 0));
    Q(cuGraphLaunch(x, s));
    Q(cuStreamSynchronize(s));
    Q(cuGraphKernelNodeGetParams_v2(kernel, &params));
  }
  H kernel = nullptr, record = nullptr, set = nullptr;
  KernelNode params = {};
};

void ask_everything(Scene& w) {
  H t = w.t, f = w.f, g = w.g, x = w.x, kernel = w.kernel, record = w.record, set = w.set;
  H h = nullptr, func = w.params.func;
  Ptr d = w.d, p = 0;
  char bytes[8] = {};
  int state = -1;
  std::size_t n = 0;
  Update u;
  KernelNode k = {};
  MemsetNode m = {};
  const char* name = nullptr;
  P(cuGraphUpload(x, t));
  P(cuGraphLaunch(x, t));
  P(cuGraphExecUpdate_v2(x, g, &u));
  P(cuGraphExecEventRecordNodeSetEvent(x, record, f));
  P(cuGraphGetNodes(g, nullptr, &n));
  P(cuGraphGetEdges_v2(g, nullptr, nullptr, nullptr, &n));
  P(cuGraphKernelNodeGetParams_v2(kernel, &k));
  P(cuGraphMemsetNodeGetParams(set, &m));
  P(cuGraphEventRecordNodeGetEvent(record, &h));
  P(cuFuncGetName(&name, func));
  P(cuMemsetD8Async(d, 1, 4, t));
  P(cuMemsetD16Async(d, 1, 4, t));
  P(cuStreamWriteValue64_v2(t, d, 1, 0));
  P(cuMemcpyDtoHAsync_v2(bytes, d, 8, t));
  P(cuMemAllocAsync(&p, 64, t));
  P(cuMemFreeAsync(p, t));
  P(cuStreamGetCaptureInfo_v2(t, &state, nullptr, nullptr, nullptr, nullptr));
  P(cuGraphExecDestroy(x));
  P(cuGraphDestroy(g));
}

CASE(graphs_on_foreign_thread, Scene) {
  std::thread([&] { ask_everything(*this); }).join();
}

CASE(sticky_graphs, Scene) {
  Q(boom(s));
  P(cuStreamSynchronize(w.s));
  ask_everything(*this);
}

// A graph of an event record and its executable copy, made in a context of their own.
struct Doomed : World {
  Doomed() {
    H s2 = nullptr;
    Q(cuCtxCreate_v2(&c, 0, dev));
    Q(cuStreamCreate(&s2, 1));
    Q(cuStreamBeginCapture_v2(s2, 1));
    Q(cuEventCreate(&h, 0));
    Q(cuEventRecordWithFlags(h, s2, 1));
    Q(cuStreamEndCapture(s2, &g));
    Q(cuGraphInstantiateWithFlags(&x, g, 0));
  }
};

CASE(graphs_of_dead_context, Doomed) {
  Update u;
  P(cuCtxDestroy_v2(c));
  P(cuGraphGetNodes(g, nullptr, &n));
  P(cuGraphExecUpdate_v2(x, g, &u));
  P(cuGraphExecDestroy(x));
}

CASE(graph_of_dead_context, Doomed) {
  P(cuCtxDestroy_v2(c));
  P(cuGraphDestroy(g));
}

CASE(fork_graph_calls, Scene) {
  char bytes[8] = {};
  int state = -1;
  Update u;
  KernelNode k = {};
  const char* name = nullptr;
  child_row("graphUpload", [&] { return cuGraphUpload(x, t); });
  child_row("graphInstantiate", [&] { return cuGraphInstantiateWithFlags(&h, g, 0); });
  child_row("graphUpdate", [&] { return cuGraphExecUpdate_v2(x, g, &u); });
  child_row("graphSetEvent", [&] { return cuGraphExecEventRecordNodeSetEvent(x, record, f); });
  child_row("graphGetNodes", [&] { return cuGraphGetNodes(g, nullptr, &n); });
  child_row("graphGetEdges", [&] { return cuGraphGetEdges_v2(g, nullptr, nullptr, nullptr, &n); });
  child_row("graphKernelParams", [&] { return cuGraphKernelNodeGetParams_v2(kernel, &k); });
  child_row("funcGetName", [&] { return cuFuncGetName(&name, params.func); });
  child_row("captureInfo", [&] {
    return cuStreamGetCaptureInfo_v2(s, &state, nullptr, nullptr, nullptr, nullptr);
  });
  child_row("memsetD8", [&] { return cuMemsetD8Async(d, 1, 4, t); });
  child_row("memsetD32", [&] { return cuMemsetD32Async(d, 1, 4, t); });
  child_row("writeValue64", [&] { return cuStreamWriteValue64_v2(t, d, 1, 0); });
  child_row("memcpyDtoH", [&] { return cuMemcpyDtoHAsync_v2(bytes, d, 8, t); });
  child_row("memGetInfo", [&] { return cuMemGetInfo_v2(&n, &n); });
  Q(cuStreamBeginCapture_v2(s, 1));
  child_row("endCapture", [&] { return cuStreamEndCapture(s, &h); });
  P(cuStreamEndCapture(s, &h));
  launch_and_wait(x, s);
}

}  // namespace

}  // namespace conformance
