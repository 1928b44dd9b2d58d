// Executable copies of graphs: making them, and setting their events.
#include "world.hpp"

namespace conformance {
namespace {

CASE(instantiate_flags, World) {
  make_graph(&g, nullptr);
  P(cuGraphInstantiateWithFlags(&x, g, 1));
  launch_and_wait(x, s);
  P(cuGraphInstantiateWithFlags(&x, g, 8));
  P(cuGraphInstantiateWithFlags(&x, g, 1 << 20));
}

CASE(upload, World) {
  make_graph(&g, &x);
  P(cuGraphUpload(x, s));
  P(cuGraphUpload(x, s));
  P(cuGraphUpload(x, u));
  P(cuGraphUpload(x, nullptr));
  P(cuGraphLaunch(x, s));
  P(cuGraphLaunch(x, nullptr));
  P(cuGraphUpload(x, s));
  P(cuCtxSynchronize());
}

// Events around a kernel of 5 ms: e and f, as recorded nodes 0 and 2.
struct Timed : World {
  Timed() {
    Q(cuStreamBeginCapture_v2(s, 1));
    Q(cuEventRecordWithFlags(e, s, 1));
    Q(spin(s, 5000));
    Q(cuEventRecordWithFlags(f, s, 1));
    Q(cuStreamEndCapture(s, &g));
    const auto all = nodes_of(g);
    first = all[0];
    kernel = all[1];
    last = all[2];
    Q(cuGraphInstantiateWithFlags(&x, g, 0));
  }
  H first = nullptr, kernel = nullptr, last = nullptr;
};

// The last launch crashes: another event was set after one of the graph's had been destroyed.
CASE(exec_set_event, Timed) {
  H a = nullptr, b = nullptr;
  H n = nullptr, out = nullptr;
  Q(cuEventCreate(&a, 0));
  Q(cuEventCreate(&b, 0));
  Q(cuEventCreate(&n, 2));
  P(cuGraphExecEventRecordNodeSetEvent(x, first, a));
  P(cuGraphLaunch(x, s));
  P(cuGraphExecEventRecordNodeSetEvent(x, first, b));
  P(cuStreamSynchronize(s));
  P(cuEventElapsedTime_v2(&ms, a, f));
  std::printf("  ms=%.9g\n", static_cast<double>(ms));
  P(cuEventElapsedTime_v2(&ms, b, f));
  launch_and_wait(x, s);
  P(cuEventElapsedTime_v2(&ms, b, f));
  P(cuGraphEventRecordNodeGetEvent(first, &out));
  std::printf("  same %d\n", out == e ? 1 : 0);
  P(cuEventDestroy_v2(b));
  launch_and_wait(x, s);
  P(cuGraphExecEventRecordNodeSetEvent(x, last, n));
  P(cuGraphLaunch(x, s));
}

CASE(exec_set_untimed_event, Timed) {
  H n = nullptr;
  Q(cuEventCreate(&n, 2));
  P(cuGraphExecEventRecordNodeSetEvent(x, last, n));
  P(cuGraphLaunch(x, s));
  P(cuEventQuery(n));
  P(cuStreamSynchronize(s));
  P(cuEventQuery(n));
}

CASE(exec_set_event_arguments, Timed) {
  H a = nullptr, g2 = nullptr;
  Q(cuEventCreate(&a, 0));
  P(cuGraphExecEventRecordNodeSetEvent(x, kernel, a));
  P(cuGraphExecEventRecordNodeSetEvent(x, nullptr, a));
  P(cuGraphExecEventRecordNodeSetEvent(nullptr, first, a));
  P(cuGraphExecEventRecordNodeSetEvent(x, first, nullptr));
  Q(cuStreamBeginCapture_v2(s, 1));
  Q(cuEventRecordWithFlags(f, s, 1));
  Q(cuStreamEndCapture(s, &g2));
  H foreign = nodes_of(g2)[0];
  P(cuGraphExecEventRecordNodeSetEvent(x, foreign, a));
  launch_and_wait(x, s);
}

CASE(exec_set_event_of_another_context, Timed) {
  H other = nullptr;
  Q(cuCtxCreate_v2(&c, 0, dev));
  Q(cuEventCreate(&other, 0));
  P(cuGraphExecEventRecordNodeSetEvent(x, first, other));
  launch_and_wait(x, s);
}

CASE(exec_set_event_after_graph, Timed) {
  H a = nullptr;
  Q(cuEventCreate(&a, 0));
  P(cuGraphDestroy(g));
  P(cuGraphExecEventRecordNodeSetEvent(x, first, a));
}

// Two executable copies of one graph keep their events apart.
CASE(exec_set_event_twice, Timed) {
  H a = nullptr;
  Q(cuEventCreate(&a, 0));
  P(cuGraphInstantiateWithFlags(&y, w.g, 0));
  P(cuGraphExecEventRecordNodeSetEvent(y, first, a));
  launch_and_wait(x, s);
  P(cuEventElapsedTime_v2(&ms, a, f));
  P(cuGraphLaunch(y, s));
  P(cuStreamSynchronize(s));
  P(cuEventElapsedTime_v2(&ms, a, f));
}

CASE(exec_set_event_of_child, Timed) {
  H parent = nullptr, node = nullptr, inner = nullptr, x = nullptr, a = nullptr;
  Q(cuEventCreate(&a, 0));
  Q(cuGraphCreate(&parent, 0));
  Q(cuGraphAddChildGraphNode(&node, parent, nullptr, 0, g));
  Q(cuGraphChildGraphNodeGetGraph(node, &inner));
  H first = nodes_of(inner)[0];
  Q(cuGraphInstantiateWithFlags(&x, parent, 0));
  P(cuGraphExecEventRecordNodeSetEvent(x, first, a));
  launch_and_wait(x, s);
  P(cuEventElapsedTime_v2(&ms, a, f));
}

CASE(exec_waits_for_event, World) {
  Q(cuStreamBeginCapture_v2(s, 1));
  Q(cuStreamWaitEvent(s, e, 1));
  H g = end(s);
  Q(cuGraphInstantiateWithFlags(&x, g, 0));
  Q(spin(t, 20000));
  P(cuEventRecord(e, t));
  P(cuGraphLaunch(x, s));
  P(cuStreamQuery(s));
  P(cuStreamSynchronize(t));
  P(cuStreamSynchronize(s));
}

}  // namespace

}  // namespace conformance
