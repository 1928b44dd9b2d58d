// What an update of an executable graph takes, and what it says when it does not.
#include "world.hpp"

namespace conformance {
namespace {

template <typename Calls>
H captured(H s, Calls calls) {
  H g = nullptr;
  Q(cuStreamBeginCapture_v2(s, 1));
  calls();
  Q(cuStreamEndCapture(s, &g));
  return g;
}

CASE(graph_update, World) {
  Update u;
  const auto spins = [&](int count, unsigned us) {
    Q(cuStreamBeginCapture_v2(s, 1));
    for (int i = 0; i < count; ++i) Q(spin(s, us));
    return end(s);
  };
  H g1 = spins(1, 10), g2 = spins(1, 20), g3 = spins(2, 10);
  Q(cuGraphInstantiateWithFlags(&x, g1, 0));
  P(cuGraphExecUpdate_v2(x, g2, &u));
  std::printf("  result=%d\n", u.result);
  P(cuGraphExecUpdate_v2(x, g3, &u));
  std::printf("  result=%d\n", u.result);
  launch_and_wait(x, s);
}

// Updates an executable copy of `own` to `other` and tells how that went.
void try_update(const char* what, H s, H own, H other) {
  H x = nullptr;
  Update u;
  std::printf("  %s\n", what);
  Q(cuGraphInstantiateWithFlags(&x, own, 0));
  P(cuGraphExecUpdate_v2(x, other, &u));
  result_of(u, other);
  launch_and_wait(x, s);
}

CASE(graph_updates, World) {
  void* pinned = nullptr;
  Q(cuMemAlloc_v2(&d, 256));
  Q(cuMemHostAlloc(&pinned, 64, 0));
  const auto kernel = [&] { Q(spin(s, 10)); };
  H g = captured(s, kernel);
  try_update("the same", s, g, captured(s, kernel));
  try_update("itself", s, g, g);
  try_update("another shape", s, g, captured(s, [&] { Q(spin_shaped(s, {{4, 1, 1}})); }));
  try_update("a memset", s, g, captured(s, [&] { Q(cuMemsetD32Async(d, 1, 4, s)); }));
  try_update("nothing", s, g, captured(s, [] {}));
  try_update("more", s, g, captured(s, [&] {
               Q(spin(s, 10));
               Q(spin(s, 10));
             }));
  H set = captured(s, [&] { Q(cuMemsetD32Async(d, 1, 4, s)); });
  try_update("another value", s, set, captured(s, [&] { Q(cuMemsetD32Async(d, 2, 4, s)); }));
  try_update("another size", s, set, captured(s, [&] { Q(cuMemsetD32Async(d, 1, 8, s)); }));
  try_update("another element", s, set, captured(s, [&] { Q(cuMemsetD8Async(d, 1, 4, s)); }));
  H copy = captured(s, [&] { Q(cuMemcpyDtoDAsync_v2(d, d + 64, 48, s)); });
  try_update("another source", s, copy,
             captured(s, [&] { Q(cuMemcpyDtoDAsync_v2(d, d + 128, 48, s)); }));
  try_update("another length", s, copy,
             captured(s, [&] { Q(cuMemcpyDtoDAsync_v2(d, d + 64, 32, s)); }));
  try_update("to the host", s, copy,
             captured(s, [&] { Q(cuMemcpyDtoHAsync_v2(pinned, d, 48, s)); }));
  H record = captured(s, [&] { Q(cuEventRecordWithFlags(e, s, 1)); });
  try_update("another event", s, record, captured(s, [&] { Q(cuEventRecordWithFlags(f, s, 1)); }));
  const auto diamond = [&](bool joined_twice) {
    Q(spin(s, 10));
    Q(cuEventRecord(e, s));
    Q(cuStreamWaitEvent(t, e, 0));
    Q(spin(t, 10));
    if (joined_twice) Q(spin(s, 10));
    Q(cuEventRecord(e, t));
    Q(cuStreamWaitEvent(s, e, 0));
    if (!joined_twice) Q(spin(s, 10));
  };
  try_update("other edges", s,
             captured(s,
                      [&] {
                        Q(spin(s, 10));
                        Q(spin(s, 10));
                        Q(spin(s, 10));
                      }),
             captured(s, [&] { diamond(true); }));
  try_update("the second is a memset", s,
             captured(s,
                      [&] {
                        Q(spin(s, 10));
                        Q(spin(s, 10));
                      }),
             captured(s, [&] {
               Q(spin(s, 10));
               Q(cuMemsetD32Async(d, 1, 4, s));
             }));
}

CASE(update_other_kernel, World) {
  Update u;
  H g = captured(s, [&] { Q(spin(s, 10)); });
  H other = captured(s, [&] { Q(boom(s)); });
  Q(cuGraphInstantiateWithFlags(&x, g, 0));
  P(cuGraphExecUpdate_v2(x, other, &u));
  result_of(u, other);
}

CASE(update_allocation, World) {
  Ptr p = 0;
  Update u;
  const auto allocate = [&] {
    Q(cuMemAllocAsync(&p, 64, s));
    Q(cuMemFreeAsync(p, s));
  };
  H g = captured(s, allocate), other = captured(s, allocate);
  Q(cuGraphInstantiateWithFlags(&x, g, 0));
  P(cuGraphExecUpdate_v2(x, other, &u));
  result_of(u, other);
}

CASE(update_child, World) {
  H node = nullptr, one = nullptr, two = nullptr, three = nullptr;
  Update u;
  Q(cuGraphCreate(&one, 0));
  Q(cuGraphCreate(&two, 0));
  Q(cuGraphCreate(&three, 0));
  H spin_once = captured(s, [&] { Q(spin(s, 10)); });
  H spin_longer = captured(s, [&] { Q(spin(s, 20)); });
  H spin_twice = captured(s, [&] {
    Q(spin(s, 10));
    Q(spin(s, 10));
  });
  Q(cuGraphAddChildGraphNode(&node, one, nullptr, 0, spin_once));
  Q(cuGraphAddChildGraphNode(&node, two, nullptr, 0, spin_longer));
  Q(cuGraphAddChildGraphNode(&node, three, nullptr, 0, spin_twice));
  Q(cuGraphInstantiateWithFlags(&x, one, 0));
  P(cuGraphExecUpdate_v2(x, two, &u));
  result_of(u, two);
  P(cuGraphExecUpdate_v2(x, three, &u));
  result_of(u, three);
  launch_and_wait(x, s);
}

CASE(update_running, World) {
  Update u;
  H g = captured(s, [&] { Q(spin(s, 20000)); });
  H other = captured(s, [&] { Q(spin(s, 10)); });
  Q(cuGraphInstantiateWithFlags(&x, g, 0));
  P(cuGraphLaunch(x, s));
  P(cuGraphExecUpdate_v2(x, other, &u));
  P(cuStreamQuery(s));
  P(cuStreamSynchronize(s));
  P(cuGraphDestroy(g));
  P(cuGraphDestroy(other));
  launch_and_wait(x, s);
}

// After an update the nodes of the first graph still name those of the executable copy.
CASE(update_then_set_event, World) {
  H a = nullptr;
  Update u;
  Q(cuEventCreate(&a, 0));
  const auto timed = [&](H event) {
    return captured(s, [&] { Q(cuEventRecordWithFlags(event, s, 1)); });
  };
  H g = timed(e), other = timed(f);
  H own = nodes_of(g)[0], theirs = nodes_of(other)[0];
  Q(cuGraphInstantiateWithFlags(&x, g, 0));
  P(cuGraphExecUpdate_v2(x, other, &u));
  P(cuGraphExecEventRecordNodeSetEvent(x, theirs, a));
  P(cuGraphExecEventRecordNodeSetEvent(x, own, a));
  launch_and_wait(x, s);
  P(cuEventElapsedTime_v2(&ms, a, a));
}

CASE(update_arguments, World) {
  Update u;
  H g = captured(s, [&] { Q(spin(s, 10)); });
  Q(cuGraphInstantiateWithFlags(&x, g, 0));
  P(cuGraphExecUpdate_v2(nullptr, g, &u));
  std::printf("  result=%d\n", u.result);
  P(cuGraphExecUpdate_v2(x, nullptr, &u));
  std::printf("  result=%d\n", u.result);
}

}  // namespace

}  // namespace conformance
