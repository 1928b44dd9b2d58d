// Beginning and ending a capture, and events that were recorded in one.
#include "world.hpp"

namespace conformance {
namespace {

CASE(capture_legacy, Unloaded) {
  P(cuStreamBeginCapture_v2(nullptr, 0));
  P(cuStreamBeginCapture_v2((H)1, 0));
  P(cuStreamBeginCapture_v2((H)2, 0));
  status((H)2);
  end((H)2);
  P(cuStreamBeginCapture_v2(s, 7));
  end(s);
}

CASE(capture_twice, Unloaded) {
  P(cuStreamBeginCapture_v2(s, 0));
  P(cuStreamBeginCapture_v2(s, 0));
  status(s);
  P(cuStreamBeginCapture_v2(t, 0));
  end(s);
  end(t);
}

CASE(capture_empty, Unloaded) {
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

CASE(cap_legacy_blocking, World) {
  int iv = -1;
  P(cuStreamBeginCapture_v2(u, 0));
  Q(spin(u, 10));
  P(cuStreamIsCapturing(nullptr, &iv));
  status(u);
  P(cuEventRecord(f, nullptr));
  status(u);
  end(u);
}

CASE(cap_plain_record, World) {
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
  launch_and_wait(x, s);
  P(cuEventQuery(e));
  P(cuEventElapsedTime_v2(&ms, e, f));
  P(cuEventRecord(e, s));
  P(cuEventRecord(f, s));
  P(cuStreamSynchronize(s));
  P(cuEventElapsedTime_v2(&ms, e, f));
}

CASE(cap_query_captured_event, World) {
  P(cuStreamBeginCapture_v2(s, 0));
  P(cuEventRecord(e, s));
  P(cuEventQuery(e));
  status(s);
  end(s);
}

CASE(cap_sync_captured_event, World) {
  P(cuStreamBeginCapture_v2(s, 0));
  P(cuEventRecord(e, s));
  P(cuEventSynchronize(e));
  status(s);
  end(s);
}

CASE(cap_elapsed_captured_event, World) {
  P(cuStreamBeginCapture_v2(s, 0));
  P(cuEventRecord(e, s));
  P(cuEventElapsedTime_v2(&ms, e, e));
  status(s);
  end(s);
}

CASE(cap_external_record, World) {
  H n = nullptr;
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

CASE(cap_external_record2, World) {
  H e = nullptr, f = nullptr;
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
  launch_and_wait(x, s);
  P(cuGraphExecDestroy(x));
  P(cuGraphDestroy(g));
}

CASE(cap_end_without_begin, Unloaded) {
  end(s);
  end(t);
}

CASE(cap_wait_uncaptured_event, World) {
  Q(cuStreamBeginCapture_v2(s, 0));
  P(cuStreamWaitEvent(s, e, 0));
  status(s);
  P(cuStreamWaitEvent(s, e, 1));
  status(s);
  end(s);
}

CASE(cap_destroy_stream, World) {
  P(cuStreamBeginCapture_v2(s, 0));
  Q(spin(s, 10));
  P(cuStreamDestroy_v2(s));
  P(cuMemAlloc_v2(&d, 64));
  P(cuCtxSynchronize());
  P(cuStreamBeginCapture_v2(t, 0));
  Q(spin(t, 10));
  nodes(end(t));
}

CASE(cap_invalid_then_more, World) {
  H gg = nullptr;
  const H* dp = nullptr;
  std::size_t nd = 0;
  int z = -1;
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

}  // namespace conformance
