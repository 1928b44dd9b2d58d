// What graphs keep alive, and when they let it go.
#include <atomic>

#include "world.hpp"

namespace conformance {
namespace {

constexpr int kSettleNaps = 30;

std::atomic<int> destroyed{0};
std::atomic<int> answer_inside{-1};

void count(void*) { ++destroyed; }

void call_the_driver(void*) {
  H h = nullptr;
  answer_inside = cuEventCreate(&h, 0);
  ++destroyed;
}

// Destructors run on a thread of the driver's, some time after the call that lets them.
void settle() {
  const int before = destroyed;
  for (int i = 0; i < kSettleNaps && destroyed == before; ++i) nap();
  std::printf("  destroyed %d\n", destroyed.load());
}

H object_of(H graph) {
  H o = nullptr;
  Q(cuUserObjectCreate(&o, nullptr, count, 1, 1));
  Q(cuGraphRetainUserObject(graph, o, 1, 1));
  return o;
}

void user_objects() {
  World w;
  H s = w.s, o = nullptr, g = nullptr, x = nullptr, y = nullptr;
  w.make_graph(&g, nullptr, 20000);
  P(cuUserObjectCreate(&o, nullptr, count, 1, 1));
  P(cuGraphRetainUserObject(g, o, 1, 1));
  P(cuGraphInstantiateWithFlags(&x, g, 0));
  P(cuGraphInstantiateWithFlags(&y, g, 0));
  P(cuGraphDestroy(g));
  settle();
  P(cuGraphExecDestroy(y));
  settle();
  P(cuGraphLaunch(x, s));
  P(cuGraphExecDestroy(x));
  std::printf("  destroyed %d\n", destroyed.load());
  P(cuStreamSynchronize(s));
  settle();
}

void user_object_references() {
  World w(false);
  H o = nullptr, p = nullptr, g = nullptr;
  Q(cuGraphCreate(&g, 0));
  P(cuUserObjectCreate(&o, nullptr, count, 2, 1));
  P(cuUserObjectRelease(o, 1));
  settle();
  P(cuGraphRetainUserObject(g, o, 2, 0));
  P(cuUserObjectRelease(o, 1));
  settle();
  P(cuGraphDestroy(g));
  settle();
  P(cuUserObjectCreate(&p, nullptr, count, 1, 1));
  P(cuUserObjectRelease(p, 1));
  settle();
}

void user_object_arguments() {
  World w(false);
  H o = nullptr, g = nullptr;
  Q(cuGraphCreate(&g, 0));
  P(cuUserObjectCreate(nullptr, nullptr, count, 1, 1));
  P(cuUserObjectCreate(&o, nullptr, nullptr, 1, 1));
  P(cuUserObjectCreate(&o, nullptr, count, 0, 1));
  P(cuUserObjectCreate(&o, nullptr, count, 1, 0));
  P(cuUserObjectCreate(&o, nullptr, count, 1, 1));
  P(cuUserObjectRelease(nullptr, 1));
  P(cuUserObjectRelease(o, 0));
  P(cuGraphRetainUserObject(nullptr, o, 1, 0));
  P(cuGraphRetainUserObject(g, nullptr, 1, 0));
  P(cuGraphRetainUserObject(g, o, 0, 0));
  P(cuGraphRetainUserObject(g, o, 1, 2));
  settle();
}

void user_object_calls_driver() {
  World w(false);
  H o = nullptr;
  Q(cuUserObjectCreate(&o, nullptr, call_the_driver, 1, 1));
  P(cuUserObjectRelease(o, 1));
  settle();
  std::printf("  inside %s\n", named(answer_inside));
}

void user_object_of_capture() {
  World w;
  H s = w.s, o = nullptr, gg = nullptr, x = nullptr;
  int state = -1;
  for (const bool fails : {true, false}) {
    Q(cuStreamBeginCapture_v2(s, 1));
    Q(spin(s, 10));
    Q(cuStreamGetCaptureInfo_v2(s, &state, nullptr, &gg, nullptr, nullptr));
    P(cuUserObjectCreate(&o, nullptr, count, 1, 1));
    P(cuGraphRetainUserObject(gg, o, 1, 1));
    status(s);
    if (fails) P(cuStreamQuery(s));
    H g = end(s);
    settle();
    if (fails) continue;
    std::printf("  same graph %d\n", g == gg ? 1 : 0);
    Q(cuGraphInstantiateWithFlags(&x, g, 0));
    P(cuGraphDestroy(g));
    settle();
    P(cuGraphExecDestroy(x));
    settle();
  }
}

void user_object_update() {
  World w;
  H s = w.s, g = nullptr, other = nullptr, x = nullptr;
  Update u = {-1, nullptr, nullptr};
  w.make_graph(&g, nullptr, 20000);
  w.make_graph(&other, nullptr, 10);
  object_of(g);
  object_of(other);
  Q(cuGraphInstantiateWithFlags(&x, g, 0));
  Q(cuGraphDestroy(g));
  P(cuGraphLaunch(x, s));
  P(cuGraphExecUpdate_v2(x, other, &u));
  std::printf("  destroyed %d\n", destroyed.load());
  P(cuStreamSynchronize(s));
  settle();
  P(cuGraphDestroy(other));
  settle();
  P(cuGraphExecDestroy(x));
  settle();
}

void user_object_of_child() {
  World w;
  H parent = nullptr, node = nullptr, g = nullptr, x = nullptr;
  w.make_graph(&g, nullptr);
  object_of(g);
  Q(cuGraphCreate(&parent, 0));
  P(cuGraphAddChildGraphNode(&node, parent, nullptr, 0, g));
  P(cuGraphDestroy(g));
  settle();
  P(cuGraphInstantiateWithFlags(&x, parent, 0));
  P(cuGraphDestroy(parent));
  settle();
  P(cuGraphExecDestroy(x));
  settle();
}

void user_object_of_dead_context() {
  World w(false);
  H c = nullptr, g = nullptr, x = nullptr;
  Q(cuGraphCreate(&g, 0));
  object_of(g);
  Q(cuCtxCreate_v2(&c, 0, w.dev));
  P(cuGraphInstantiateWithFlags(&x, g, 0));
  P(cuGraphDestroy(g));
  P(cuCtxDestroy_v2(c));
  settle();
  P(cuGraphExecDestroy(x));
  settle();
}

}  // namespace

const Case kUserObjectCases[] = {
    {"user_objects", user_objects},
    {"user_object_references", user_object_references},
    {"user_object_arguments", user_object_arguments},
    {"user_object_calls_driver", user_object_calls_driver},
    {"user_object_of_capture", user_object_of_capture},
    {"user_object_update", user_object_update},
    {"user_object_of_child", user_object_of_child},
    {"user_object_of_dead_context", user_object_of_dead_context},
    {nullptr, nullptr},
};

}  // namespace conformance
