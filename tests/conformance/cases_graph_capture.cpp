// Calls about graphs and memory while a capture is open, and what the log says of refused ones.
#include <thread>

#include "log.hpp"
#include "world.hpp"

namespace conformance {
namespace {

struct Scene : World {
  Scene() {
    make_graph(&g, &x);
    make_graph(&g2, nullptr);
    Q(cuMemAlloc_v2(&d, 256));
    Q(cuMemHostAlloc(&pinned, 64, 0));
    Q(cuStreamBeginCapture_v2(s, 1));
    Q(cuEventRecordWithFlags(e, s, 1));
    Q(cuStreamEndCapture(s, &timed));
    Q(cuGraphInstantiateWithFlags(&y, timed, 0));
    node = nodes_of(timed)[0];
  }
  H g2 = nullptr, timed = nullptr, node = nullptr;
  void* pinned = nullptr;
};

// Makes one call in a capture on `s`, and shows what becomes of the capture.
template <typename Call>
void in_capture(Scene& w, int mode, Call call) {
  Q(cuStreamBeginCapture_v2(w.s, mode));
  Q(spin(w.s, 10));
  call();
  status(w.s);
  H g = nullptr;
  cuStreamEndCapture(w.s, &g);
  if (g != nullptr) Q(cuGraphDestroy(g));
}

void cap_graph_calls(int mode) {
  Scene w;
  H t = w.t, g = w.g, x = w.x, g2 = w.g2, y = w.y, node = w.node, f = w.f, h = nullptr;
  std::size_t n = 0;
  Update u;
  const auto in = [&](auto call) { in_capture(w, mode, call); };
  in([&] { P(cuGraphGetNodes(g, nullptr, &n)); });
  in([&] { P(cuGraphGetEdges_v2(g, nullptr, nullptr, nullptr, &n)); });
  in([&] { P(cuGraphExecUpdate_v2(x, g2, &u)); });
  in([&] { P(cuGraphExecEventRecordNodeSetEvent(y, node, f)); });
  in([&] { P(cuGraphUpload(x, t)); });
  in([&] { P(cuGraphLaunch(x, t)); });
  in([&] { P(cuGraphAddChildGraphNode(&h, g2, nullptr, 0, g)); });
  in([&] { P(cuGraphDestroy(g2)); });
}

CASE(cap_graph_calls_tl, Untouched) { cap_graph_calls(1); }
CASE(cap_graph_calls_relaxed, Untouched) { cap_graph_calls(2); }

void cap_memory_calls(int mode) {
  Scene w;
  H t = w.t;
  Ptr d = w.d, p = 0;
  void* pinned = w.pinned;
  char pageable[8] = {};
  const auto in = [&](auto call) { in_capture(w, mode, call); };
  in([&] { P(cuMemsetD8Async(d, 1, 4, t)); });
  in([&] { P(cuMemsetD16Async(d, 1, 4, t)); });
  in([&] { P(cuMemsetD32Async(d, 1, 4, t)); });
  in([&] { P(cuStreamWriteValue64_v2(t, d, 1, 0)); });
  in([&] { P(cuMemcpyDtoHAsync_v2(pinned, d, 8, t)); });
  in([&] { P(cuMemcpyDtoHAsync_v2(pageable, d, 8, t)); });
  in([&] { P(cuMemcpyHtoDAsync_v2(d, pageable, 8, t)); });
  in([&] { P(cuMemcpyDtoDAsync_v2(d, d + 64, 8, t)); });
  in([&] { P(cuMemAllocAsync(&p, 64, t)); });
  in([&] { P(cuMemFreeAsync(p, t)); });
}

CASE(cap_memory_calls_global, Untouched) { cap_memory_calls(0); }
CASE(cap_memory_calls_tl, Untouched) { cap_memory_calls(1); }

// The graph in the making can be looked into, and is not yet the program's.
CASE(cap_own_graph, World) {
  H gg = nullptr, node = nullptr, mine = nullptr;
  const H* tips = nullptr;
  int state = -1;
  KernelNode k = {};
  const char* name = nullptr;
  P(cuStreamBeginCapture_v2(s, 1));
  Q(spin(s, 10));
  Q(spin_shaped(s, {{4, 1, 1}}));
  P(cuStreamGetCaptureInfo_v2(s, &state, &id, &gg, &tips, &n));
  std::printf("  state=%d graph=%d tips=%zu\n", state, gg != nullptr ? 1 : 0, n);
  P(cuStreamGetCaptureInfo_v2(s, &state, nullptr, nullptr, nullptr, nullptr));
  P(cuStreamGetCaptureInfo_v2(s, nullptr, nullptr, nullptr, nullptr, nullptr));
  node = tips[0];
  P(cuGraphGetNodes(gg, nullptr, &n));
  std::printf("  n=%zu\n", n);
  P(cuGraphGetEdges_v2(gg, nullptr, nullptr, nullptr, &n));
  std::printf("  n=%zu\n", n);
  P(cuGraphKernelNodeGetParams_v2(node, &k));
  P(cuFuncGetName(&name, k.func));
  std::printf("  grid %u name %s\n", k.grid[0], name);
  status(s);
  Q(cuThreadExchangeStreamCaptureMode(&m));
  P(cuGraphInstantiateWithFlags(&x, gg, 0));
  Q(cuThreadExchangeStreamCaptureMode(&m));
  status(s);
  P(cuStreamQuery(s));
  P(cuStreamGetCaptureInfo_v2(s, &state, &id, &gg, &tips, &n));
  mine = end(s);
  P(cuGraphGetNodes(gg, nullptr, &n));
  P(cuStreamGetCaptureInfo_v2(s, &state, &id, &gg, &tips, &n));
  std::printf("  state=%d\n", state);
  if (mine != nullptr) nodes(mine);
}

CASE(cap_destroy_own_graph, World) {
  H gg = nullptr;
  int state = -1;
  Q(cuStreamBeginCapture_v2(s, 1));
  Q(spin(s, 10));
  Q(cuStreamGetCaptureInfo_v2(s, &state, nullptr, &gg, nullptr, nullptr));
  P(cuGraphDestroy(gg));
  status(s);
}

CASE(cap_context_of_stream, World) {
  P(cuStreamBeginCapture_v2(s, 1));
  P(cuStreamGetCtx(s, &c));
  P(cuStreamQuery(s));
  P(cuStreamGetCtx(s, &c));
  status(s);
  end(s);
  P(cuStreamGetCtx(s, &c));
}

// The log's lines for each refused call.
CASE(log_of_more_refusals, Scene) {
  H g = nullptr;
  unsigned from = 0;
  Ptr d = 0;
  Update up = {};
  const auto refused = [&](H stream, int mode, auto call) {
    Q(cuStreamBeginCapture_v2(stream, mode));
    Q(cuLogsCurrent(&from, 0));
    call();
    print_log(from);
    cuStreamEndCapture(stream, &g);
  };
  refused(s, 1, [&] { P(cuStreamSynchronize(s)); });
  refused(s, 1, [&] { P(cuStreamSynchronize(t)); });
  refused(s, 1, [&] { P(cuStreamQuery(s)); });
  refused(s, 1, [&] { P(cuCtxSynchronize()); });
  refused(s, 1, [&] { P(cuEventQuery(e)); });
  refused(s, 1, [&] { P(cuEventSynchronize(e)); });
  refused(s, 1, [&] { P(cuMemFree_v2(w.d)); });
  refused(s, 1, [&] { P(cuGraphLaunch(x, s)); });
  refused(s, 1, [&] { P(cuGraphExecDestroy(x)); });
  refused(s, 1, [&] { P(cuStreamBeginCapture_v2(s, 1)); });
  refused(s, 1, [&] { P(cuStreamWaitEvent(s, e, 0)); });
  refused(u, 1, [&] { P(spin(nullptr, 10)); });
  refused(s, 0, [&] { std::thread([&] { P(cuEventQuery(e)); }).join(); });
  refused(s, 1, [&] { std::thread([&] { end(s); }).join(); });
  refused(s, 1, [&] {
    Q(cuEventRecord(e, s));
    Q(cuStreamWaitEvent(t, e, 0));
    Q(spin(t, 10));
    end(s);
  });
  refused(s, 1, [&] {
    Q(cuEventRecord(e, s));
    Q(cuStreamWaitEvent(t, e, 0));
    end(t);
  });
  refused(s, 1, [&] {
    Q(cuStreamBeginCapture_v2(t, 1));
    Q(cuEventRecord(e, t));
    P(cuStreamWaitEvent(s, e, 0));
    end(t);
  });
  Q(cuLogsCurrent(&from, 0));
  end(s);
  print_log(from);
  P(cuStreamBeginCapture_v2(nullptr, 1));
  print_log(from);
  P(cuGraphExecUpdate_v2(x, w.timed, &up));
  print_log(from);
  P(cuGraphLaunch(nullptr, s));
  print_log(from);
  P(cuMemAlloc_v2(&d, 0));
  print_log(from);
}

}  // namespace

}  // namespace conformance
