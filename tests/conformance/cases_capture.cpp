// Beginning and ending a capture, and events that were recorded in one.
#include "world.hpp"

namespace conformance {
namespace {

void capture_legacy() {
  World w(false);
  H s = w.s;
  P(cuStreamBeginCapture_v2(nullptr, 0));
  P(cuStreamBeginCapture_v2((H)1, 0));
  P(cuStreamBeginCapture_v2((H)2, 0));
  status((H)2);
  end((H)2);
  P(cuStreamBeginCapture_v2(s, 7));
  end(s);
}

void capture_twice() {
  World w(false);
  H s = w.s, t = w.t;
  P(cuStreamBeginCapture_v2(s, 0));
  P(cuStreamBeginCapture_v2(s, 0));
  status(s);
  P(cuStreamBeginCapture_v2(t, 0));
  end(s);
  end(t);
}

void capture_empty() {
  World w(false);
  H s = w.s, x = nullptr;
  P(cuStreamBeginCapture_v2(s, 1));
  H g = end(s);
  nodes(g);
  P(cuGraphInstantiateWithFlags(&x, g, 0));
  P(cuGraphUpload(x, s));
  P(cuGraphLaunch(x, s));
  P(cuGraphDestroy(g));
  P(cuGraphLaunch(x, s));
  P(cuGraphExecDestroy(x));
  P(cuStreamSynchronize(s));
}

void cap_legacy_blocking() {
  World w;
  H u = w.u, f = w.f;
  int iv = -1;
  P(cuStreamBeginCapture_v2(u, 0));
  Q(spin(u, 10));
  P(cuStreamIsCapturing(nullptr, &iv));
  status(u);
  P(cuEventRecord(f, nullptr));
  status(u);
  end(u);
}

void cap_plain_record() {
  World w;
  H s = w.s, e = w.e, f = w.f, x = nullptr;
  float ms = -1;
  P(cuStreamBeginCapture_v2(s, 0));
  P(cuEventRecord(e, s));
  Q(spin(s, 10));
  P(cuEventRecord(f, s));
  H g = end(s);
  nodes(g);
  P(cuEventQuery(e));
  P(cuEventSynchronize(e));
  P(cuEventElapsedTime_v2(&ms, e, f));
  P(cuGraphInstantiateWithFlags(&x, g, 0));
  P(cuGraphLaunch(x, s));
  P(cuStreamSynchronize(s));
  P(cuEventQuery(e));
  P(cuEventElapsedTime_v2(&ms, e, f));
  P(cuEventRecord(e, s));
  P(cuEventRecord(f, s));
  P(cuStreamSynchronize(s));
  P(cuEventElapsedTime_v2(&ms, e, f));
}

void cap_query_captured_event() {
  World w;
  H s = w.s, e = w.e;
  P(cuStreamBeginCapture_v2(s, 0));
  P(cuEventRecord(e, s));
  P(cuEventQuery(e));
  status(s);
  end(s);
}

void cap_sync_captured_event() {
  World w;
  H s = w.s, e = w.e;
  P(cuStreamBeginCapture_v2(s, 0));
  P(cuEventRecord(e, s));
  P(cuEventSynchronize(e));
  status(s);
  end(s);
}

void cap_elapsed_captured_event() {
  World w;
  H s = w.s, e = w.e;
  float ms = -1;
  P(cuStreamBeginCapture_v2(s, 0));
  P(cuEventRecord(e, s));
  P(cuEventElapsedTime_v2(&ms, e, e));
  status(s);
  end(s);
}

void cap_external_record() {
  World w;
  H s = w.s, e = w.e, f = w.f, n = nullptr;
  Q(cuEventCreate(&n, 2));
  P(cuStreamBeginCapture_v2(s, 1));
  P(cuEventRecordWithFlags(e, s, 1));
  Q(spin(s, 10));
  P(cuEventRecordWithFlags(f, s, 1));
  P(cuEventRecordWithFlags(n, s, 1));
  P(cuEventQuery(e));
  status(s);
  end(s);
}

void read_replay(H x, H s, H e, H f) {
  float ms = -1;
  P(cuGraphLaunch(x, s));
  P(cuEventElapsedTime_v2(&ms, e, f));
  P(cuEventSynchronize(f));
  P(cuEventElapsedTime_v2(&ms, e, f));
  std::printf("  ms=%.6g\n", static_cast<double>(ms));
}

void cap_external_record2() {
  World w;
  H s = w.s, e = nullptr, f = nullptr, x = nullptr;
  float ms = -1;
  Q(cuEventCreate(&e, 0));
  Q(cuEventCreate(&f, 0));
  P(cuStreamBeginCapture_v2(s, 1));
  P(cuEventRecordWithFlags(e, s, 1));
  Q(spin(s, 5000));
  P(cuEventRecordWithFlags(f, s, 1));
  P(cuEventElapsedTime_v2(&ms, e, f));
  status(s);
  H g = end(s);
  nodes(g);
  P(cuEventQuery(e));
  P(cuEventElapsedTime_v2(&ms, e, f));
  P(cuGraphInstantiateWithFlags(&x, g, 0));
  read_replay(x, s, e, f);
  read_replay(x, s, e, f);
  P(cuEventDestroy_v2(e));
  P(cuGraphLaunch(x, s));
  P(cuStreamSynchronize(s));
  P(cuGraphExecDestroy(x));
  P(cuGraphDestroy(g));
}

void cap_end_without_begin() {
  World w(false);
  end(w.s);
  end(w.t);
}

void cap_wait_uncaptured_event() {
  World w;
  H s = w.s, e = w.e;
  Q(cuStreamBeginCapture_v2(s, 0));
  P(cuStreamWaitEvent(s, e, 0));
  status(s);
  P(cuStreamWaitEvent(s, e, 1));
  status(s);
  end(s);
}

void cap_destroy_stream() {
  World w;
  H s = w.s, t = w.t;
  Ptr d = 0;
  P(cuStreamBeginCapture_v2(s, 0));
  Q(spin(s, 10));
  P(cuStreamDestroy_v2(s));
  P(cuMemAlloc_v2(&d, 64));
  P(cuCtxSynchronize());
  P(cuStreamBeginCapture_v2(t, 0));
  Q(spin(t, 10));
  nodes(end(t));
}

void cap_invalid_then_more() {
  World w;
  H s = w.s, e = w.e, gg = nullptr;
  const H* dp = nullptr;
  std::size_t nd = 0;
  int z = -1;
  unsigned long long id = 0;
  Ptr d = 0;
  Q(cuStreamBeginCapture_v2(s, 0));
  Q(spin(s, 10));
  cuStreamQuery(s);
  status(s);
  P(spin(s, 1000));
  P(cuEventRecord(e, s));
  P(cuStreamBeginCapture_v2(s, 0));
  P(cuStreamGetCaptureInfo_v2(s, &z, &id, &gg, &dp, &nd));
  P(cuMemAlloc_v2(&d, 64));
  end(s);
  status(s);
  P(spin(s, 1000));
  P(cuStreamSynchronize(s));
}

}  // namespace

const Case kCaptureCases[] = {
    {"capture_legacy", capture_legacy},
    {"capture_twice", capture_twice},
    {"capture_empty", capture_empty},
    {"cap_legacy_blocking", cap_legacy_blocking},
    {"cap_plain_record", cap_plain_record},
    {"cap_query_captured_event", cap_query_captured_event},
    {"cap_sync_captured_event", cap_sync_captured_event},
    {"cap_elapsed_captured_event", cap_elapsed_captured_event},
    {"cap_external_record", cap_external_record},
    {"cap_external_record2", cap_external_record2},
    {"cap_end_without_begin", cap_end_without_begin},
    {"cap_wait_uncaptured_event", cap_wait_uncaptured_event},
    {"cap_destroy_stream", cap_destroy_stream},
    {"cap_invalid_then_more", cap_invalid_then_more},
    {nullptr, nullptr},
};

}  // namespace conformance
