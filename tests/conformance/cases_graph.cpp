// The life of graphs and of their executable copies.
#include "world.hpp"

namespace conformance {
namespace {

CASE(graph_lifetime, World) {
  Q(cuStreamBeginCapture_v2(s, 1));
  Q(spin(s, 20000));
  H g = end(s);
  P(cuGraphInstantiateWithFlags(&x, g, 0));
  P(cuGraphDestroy(g));
  P(cuGraphLaunch(x, s));
  P(cuGraphLaunch(x, t));
  P(cuStreamQuery(t));
  P(cuGraphExecDestroy(x));
  P(cuStreamQuery(s));
  P(cuStreamSynchronize(s));
  P(cuStreamSynchronize(t));
}

CASE(graph_double_destroy, Unloaded) {
  Q(cuGraphCreate(&g, 0));
  P(cuGraphDestroy(g));
  P(cuGraphDestroy(g));
}

H exec_of_empty_graph() {
  H g = nullptr, x = nullptr;
  Q(cuGraphCreate(&g, 0));
  Q(cuGraphInstantiateWithFlags(&x, g, 0));
  return x;
}

CASE(graphexec_double_destroy, Unloaded) {
  H x = exec_of_empty_graph();
  P(cuGraphExecDestroy(x));
  P(cuGraphExecDestroy(x));
}

CASE(graphexec_use_after_destroy, Unloaded) {
  H x = exec_of_empty_graph();
  Q(cuGraphExecDestroy(x));
  P(cuGraphLaunch(x, s));
}

CASE(graph_null, Unloaded) {
  P(cuGraphLaunch(nullptr, s));
  P(cuGraphDestroy(nullptr));
  P(cuGraphExecDestroy(nullptr));
  P(cuGraphInstantiateWithFlags(&x, nullptr, 0));
  P(cuGraphGetNodes(nullptr, nullptr, &n));
}

}  // namespace

}  // namespace conformance
