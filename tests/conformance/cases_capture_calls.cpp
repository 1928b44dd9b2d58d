// One call in the body of a capture, and what is left of the capture after it.
#include "world.hpp"

namespace conformance {
namespace {

// The calls of a body use the names that World's members have.
struct Body : World {
  H x0 = nullptr, g0 = nullptr, h = nullptr;
  Ptr d = 0, d2 = 0;
  float ms = -1;
  int iv = -1;
};

// Begins, launches a kernel, runs the body, ends, and shows that the stream works again.
template <typename Calls>
void in_capture(int mode, Calls calls) {
  Body b;
  H s = b.s, e = b.e;
  Q(cuMemAlloc_v2(&b.d, 256));
  b.make_graph(&b.g0, &b.x0);
  row(mode == 0   ? "cuStreamBeginCapture_v2(s,0)"
      : mode == 1 ? "cuStreamBeginCapture_v2(s,1)"
                  : "cuStreamBeginCapture_v2(s,2)",
      cuStreamBeginCapture_v2(s, mode));
  Q(spin(s, 10));
  calls(b);
  status(s);
  H g = end(s);
  if (g != nullptr) nodes(g);
  status(s);
  P(cuEventRecord(e, s));
  P(cuStreamSynchronize(s));
}

void cap_sync_self() {
  in_capture(0, [](Body& b) {
    H s = b.s;
    P(cuStreamSynchronize(s));
  });
}
void cap_query_self() {
  in_capture(0, [](Body& b) {
    H s = b.s;
    P(cuStreamQuery(s));
  });
}
void cap_ctxsync() {
  in_capture(0, [](Body&) { P(cuCtxSynchronize()); });
}
void cap_ctxsync_relaxed() {
  in_capture(2, [](Body&) { P(cuCtxSynchronize()); });
}
void cap_event_create_destroy() {
  in_capture(0, [](Body& b) {
    H h = nullptr, f = b.f;
    P(cuEventCreate(&h, 0));
    P(cuEventDestroy_v2(h));
    P(cuEventDestroy_v2(f));
  });
}
void cap_event_query_unrelated() {
  in_capture(0, [](Body& b) {
    H e = b.e;
    P(cuEventQuery(e));
  });
}
void cap_event_query_unrelated_tl() {
  in_capture(1, [](Body& b) {
    H e = b.e;
    P(cuEventQuery(e));
  });
}
void cap_event_query_unrelated_relaxed() {
  in_capture(2, [](Body& b) {
    H e = b.e;
    P(cuEventQuery(e));
  });
}
void cap_event_sync_unrelated() {
  in_capture(0, [](Body& b) {
    H e = b.e;
    P(cuEventSynchronize(e));
  });
}
void cap_elapsed_unrelated() {
  in_capture(0, [](Body& b) {
    H e = b.e, f = b.f;
    float ms = -1;
    P(cuEventElapsedTime_v2(&ms, e, f));
  });
}
void cap_stream_query_unrelated() {
  in_capture(0, [](Body& b) {
    H t = b.t;
    P(cuStreamQuery(t));
  });
}
void cap_stream_sync_unrelated() {
  in_capture(0, [](Body& b) {
    H t = b.t;
    P(cuStreamSynchronize(t));
  });
}
void cap_stream_create_destroy() {
  in_capture(0, [](Body&) {
    H h = nullptr;
    P(cuStreamCreate(&h, 1));
    P(cuStreamDestroy_v2(h));
  });
}
void allocate(Body& b) {
  Ptr& d2 = b.d2;
  P(cuMemAlloc_v2(&d2, 256));
}
void release(Body& b) {
  Ptr d = b.d;
  P(cuMemFree_v2(d));
}
void cap_memalloc() { in_capture(0, allocate); }
void cap_memalloc_tl() { in_capture(1, allocate); }
void cap_memalloc_relaxed() { in_capture(2, allocate); }
void cap_memfree() { in_capture(0, release); }
void cap_memfree_relaxed() { in_capture(2, release); }
void cap_memgetinfo() {
  in_capture(0, [](Body&) {
    std::size_t a = 0, b = 0;
    P(cuMemGetInfo_v2(&a, &b));
  });
}
void cap_moduleload() {
  in_capture(0, [](Body&) {
    H h = nullptr;
    if (!is_fake()) P(cuModuleLoadData(&h, PTX));
  });
}
void cap_graph_ops() {
  in_capture(0, [](Body& b) {
    H h = nullptr, g0 = b.g0, x0 = b.x0, t = b.t;
    P(cuGraphCreate(&h, 0));
    P(cuGraphDestroy(h));
    P(cuGraphInstantiateWithFlags(&h, g0, 0));
    P(cuGraphUpload(h, t));
    P(cuGraphLaunch(x0, t));
    P(cuGraphExecDestroy(h));
    P(cuGraphExecDestroy(x0));
    P(cuGraphDestroy(g0));
  });
}
void cap_graphlaunch_into() {
  in_capture(0, [](Body& b) {
    H x0 = b.x0, s = b.s;
    P(cuGraphLaunch(x0, s));
  });
}
void cap_legacy_query_nonblocking() {
  in_capture(0, [](Body& b) {
    H f = b.f;
    int iv = -1;
    P(cuStreamIsCapturing(nullptr, &iv));
    P(cuEventRecord(f, nullptr));
    P(cuStreamQuery(nullptr));
  });
}

}  // namespace

const Case kCaptureCallCases[] = {
    {"cap_sync_self", cap_sync_self},
    {"cap_query_self", cap_query_self},
    {"cap_ctxsync", cap_ctxsync},
    {"cap_ctxsync_relaxed", cap_ctxsync_relaxed},
    {"cap_event_create_destroy", cap_event_create_destroy},
    {"cap_event_query_unrelated", cap_event_query_unrelated},
    {"cap_event_query_unrelated_tl", cap_event_query_unrelated_tl},
    {"cap_event_query_unrelated_relaxed", cap_event_query_unrelated_relaxed},
    {"cap_event_sync_unrelated", cap_event_sync_unrelated},
    {"cap_elapsed_unrelated", cap_elapsed_unrelated},
    {"cap_stream_query_unrelated", cap_stream_query_unrelated},
    {"cap_stream_sync_unrelated", cap_stream_sync_unrelated},
    {"cap_stream_create_destroy", cap_stream_create_destroy},
    {"cap_memalloc", cap_memalloc},
    {"cap_memalloc_tl", cap_memalloc_tl},
    {"cap_memalloc_relaxed", cap_memalloc_relaxed},
    {"cap_memfree", cap_memfree},
    {"cap_memfree_relaxed", cap_memfree_relaxed},
    {"cap_memgetinfo", cap_memgetinfo},
    {"cap_moduleload", cap_moduleload},
    {"cap_graph_ops", cap_graph_ops},
    {"cap_graphlaunch_into", cap_graphlaunch_into},
    {"cap_legacy_query_nonblocking", cap_legacy_query_nonblocking},
    {nullptr, nullptr},
};

}  // namespace conformance
