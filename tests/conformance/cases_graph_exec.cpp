// Executable copies of graphs: making them, and setting their events.
#include "world.hpp"

namespace conformance {
namespace {

void instantiate_flags() {
  World w;
  H s = w.s, g = nullptr, x = nullptr;
  w.make_graph(&g, nullptr);
  P(cuGraphInstantiateWithFlags(&x, g, 1));
  P(cuGraphLaunch(x, s));
  P(cuStreamSynchronize(s));
  P(cuGraphInstantiateWithFlags(&x, g, 8));
  P(cuGraphInstantiateWithFlags(&x, g, 1 << 20));
}

void upload() {
  World w;
  H s = w.s, u = w.u, g = nullptr, x = nullptr;
  w.make_graph(&g, &x);
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
  H g = nullptr, x = nullptr, first = nullptr, kernel = nullptr, last = nullptr;
};

// The last launch crashes: another event was set after one of the graph's had been destroyed.
void exec_set_event() {
  Timed w;
  H s = w.s, x = w.x, f = w.f, first = w.first, last = w.last, a = nullptr, b = nullptr;
  H n = nullptr, out = nullptr;
  float ms = -1;
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
  P(cuGraphLaunch(x, s));
  P(cuStreamSynchronize(s));
  P(cuEventElapsedTime_v2(&ms, b, f));
  P(cuGraphEventRecordNodeGetEvent(first, &out));
  std::printf("  same %d\n", out == w.e ? 1 : 0);
  P(cuEventDestroy_v2(b));
  P(cuGraphLaunch(x, s));
  P(cuStreamSynchronize(s));
  P(cuGraphExecEventRecordNodeSetEvent(x, last, n));
  P(cuGraphLaunch(x, s));
}

void exec_set_untimed_event() {
  Timed w;
  H s = w.s, x = w.x, last = w.last, n = nullptr;
  Q(cuEventCreate(&n, 2));
  P(cuGraphExecEventRecordNodeSetEvent(x, last, n));
  P(cuGraphLaunch(x, s));
  P(cuEventQuery(n));
  P(cuStreamSynchronize(s));
  P(cuEventQuery(n));
}

void exec_set_event_arguments() {
  Timed w;
  H s = w.s, x = w.x, kernel = w.kernel, first = w.first, a = nullptr, g2 = nullptr;
  Q(cuEventCreate(&a, 0));
  P(cuGraphExecEventRecordNodeSetEvent(x, kernel, a));
  P(cuGraphExecEventRecordNodeSetEvent(x, nullptr, a));
  P(cuGraphExecEventRecordNodeSetEvent(nullptr, first, a));
  P(cuGraphExecEventRecordNodeSetEvent(x, first, nullptr));
  Q(cuStreamBeginCapture_v2(s, 1));
  Q(cuEventRecordWithFlags(w.f, s, 1));
  Q(cuStreamEndCapture(s, &g2));
  H foreign = nodes_of(g2)[0];
  P(cuGraphExecEventRecordNodeSetEvent(x, foreign, a));
  P(cuGraphLaunch(x, s));
  P(cuStreamSynchronize(s));
}

void exec_set_event_of_another_context() {
  Timed w;
  H s = w.s, x = w.x, first = w.first, c = nullptr, other = nullptr;
  Q(cuCtxCreate_v2(&c, 0, w.dev));
  Q(cuEventCreate(&other, 0));
  P(cuGraphExecEventRecordNodeSetEvent(x, first, other));
  P(cuGraphLaunch(x, s));
  P(cuStreamSynchronize(s));
}

void exec_set_event_after_graph() {
  Timed w;
  H x = w.x, g = w.g, first = w.first, a = nullptr;
  Q(cuEventCreate(&a, 0));
  P(cuGraphDestroy(g));
  P(cuGraphExecEventRecordNodeSetEvent(x, first, a));
}

// Two executable copies of one graph keep their events apart.
void exec_set_event_twice() {
  Timed w;
  H s = w.s, x = w.x, y = nullptr, first = w.first, a = nullptr, f = w.f;
  float ms = -1;
  Q(cuEventCreate(&a, 0));
  P(cuGraphInstantiateWithFlags(&y, w.g, 0));
  P(cuGraphExecEventRecordNodeSetEvent(y, first, a));
  P(cuGraphLaunch(x, s));
  P(cuStreamSynchronize(s));
  P(cuEventElapsedTime_v2(&ms, a, f));
  P(cuGraphLaunch(y, s));
  P(cuStreamSynchronize(s));
  P(cuEventElapsedTime_v2(&ms, a, f));
}

void exec_set_event_of_child() {
  Timed w;
  H s = w.s, parent = nullptr, node = nullptr, inner = nullptr, x = nullptr, a = nullptr, f = w.f;
  float ms = -1;
  Q(cuEventCreate(&a, 0));
  Q(cuGraphCreate(&parent, 0));
  Q(cuGraphAddChildGraphNode(&node, parent, nullptr, 0, w.g));
  Q(cuGraphChildGraphNodeGetGraph(node, &inner));
  H first = nodes_of(inner)[0];
  Q(cuGraphInstantiateWithFlags(&x, parent, 0));
  P(cuGraphExecEventRecordNodeSetEvent(x, first, a));
  P(cuGraphLaunch(x, s));
  P(cuStreamSynchronize(s));
  P(cuEventElapsedTime_v2(&ms, a, f));
}

void exec_waits_for_event() {
  World w;
  H s = w.s, t = w.t, e = w.e, x = nullptr;
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

const Case kGraphExecCases[] = {
    {"instantiate_flags", instantiate_flags},
    {"upload", upload},
    {"exec_set_event", exec_set_event},
    {"exec_set_untimed_event", exec_set_untimed_event},
    {"exec_set_event_arguments", exec_set_event_arguments},
    {"exec_set_event_of_another_context", exec_set_event_of_another_context},
    {"exec_set_event_after_graph", exec_set_event_after_graph},
    {"exec_set_event_twice", exec_set_event_twice},
    {"exec_set_event_of_child", exec_set_event_of_child},
    {"exec_waits_for_event", exec_waits_for_event},
    {nullptr, nullptr},
};

}  // namespace conformance
