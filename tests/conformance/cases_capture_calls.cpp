// One call in the body of a capture, and what is left of the capture after it.
#include <string>

#include "world.hpp"

namespace conformance {
namespace {

// Begins, launches a kernel, makes the calls, ends, and shows that the stream works again.
template <int kMode>
struct Captured : World {
  template <typename Calls>
  void around(Calls calls) {
    Q(cuMemAlloc_v2(&d, 256));
    make_graph(&g0, &x0);
    row(("cuStreamBeginCapture_v2(s," + std::to_string(kMode) + ")").c_str(),
        cuStreamBeginCapture_v2(s, kMode));
    Q(spin(s, 10));
    calls();
    status(s);
    H made = end(s);
    if (made != nullptr) nodes(made);
    status(s);
    P(cuEventRecord(e, s));
    P(cuStreamSynchronize(s));
  }
  H x0 = nullptr, g0 = nullptr;
  Ptr d2 = 0;
  int iv = -1;
};

CASE(cap_sync_self, Captured<0>) { P(cuStreamSynchronize(s)); }
CASE(cap_query_self, Captured<0>) { P(cuStreamQuery(s)); }
CASE(cap_ctxsync, Captured<0>) { P(cuCtxSynchronize()); }
CASE(cap_ctxsync_relaxed, Captured<2>) { P(cuCtxSynchronize()); }
CASE(cap_event_create_destroy, Captured<0>) {
  P(cuEventCreate(&h, 0));
  P(cuEventDestroy_v2(h));
  P(cuEventDestroy_v2(f));
}
CASE(cap_event_query_unrelated, Captured<0>) { P(cuEventQuery(e)); }
CASE(cap_event_query_unrelated_tl, Captured<1>) { P(cuEventQuery(e)); }
CASE(cap_event_query_unrelated_relaxed, Captured<2>) { P(cuEventQuery(e)); }
CASE(cap_event_sync_unrelated, Captured<0>) { P(cuEventSynchronize(e)); }
CASE(cap_elapsed_unrelated, Captured<0>) { P(cuEventElapsedTime_v2(&ms, e, f)); }
CASE(cap_stream_query_unrelated, Captured<0>) { P(cuStreamQuery(t)); }
CASE(cap_stream_sync_unrelated, Captured<0>) { P(cuStreamSynchronize(t)); }
CASE(cap_stream_create_destroy, Captured<0>) {
  P(cuStreamCreate(&h, 1));
  P(cuStreamDestroy_v2(h));
}
CASE(cap_memalloc, Captured<0>) { P(cuMemAlloc_v2(&d2, 256)); }
CASE(cap_memalloc_tl, Captured<1>) { P(cuMemAlloc_v2(&d2, 256)); }
CASE(cap_memalloc_relaxed, Captured<2>) { P(cuMemAlloc_v2(&d2, 256)); }
CASE(cap_memfree, Captured<0>) { P(cuMemFree_v2(d)); }
CASE(cap_memfree_relaxed, Captured<2>) { P(cuMemFree_v2(d)); }
CASE(cap_memgetinfo, Captured<0>) {
  std::size_t a = 0, b = 0;
  P(cuMemGetInfo_v2(&a, &b));
}
CASE(cap_moduleload, Captured<0>) {
  if (!is_fake()) P(cuModuleLoadData(&h, PTX));
}
CASE(cap_graph_ops, Captured<0>) {
  P(cuGraphCreate(&h, 0));
  P(cuGraphDestroy(h));
  P(cuGraphInstantiateWithFlags(&h, g0, 0));
  P(cuGraphUpload(h, t));
  P(cuGraphLaunch(x0, t));
  P(cuGraphExecDestroy(h));
  P(cuGraphExecDestroy(x0));
  P(cuGraphDestroy(g0));
}
CASE(cap_graphlaunch_into, Captured<0>) { P(cuGraphLaunch(x0, s)); }
CASE(cap_legacy_query_nonblocking, Captured<0>) {
  P(cuStreamIsCapturing(nullptr, &iv));
  P(cuEventRecord(f, nullptr));
  P(cuStreamQuery(nullptr));
}

}  // namespace

}  // namespace conformance
