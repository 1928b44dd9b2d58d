// The life of graphs and of their executable copies.
#include "world.hpp"

namespace conformance {
namespace {

void graph_lifetime() {
  World w;
  H s = w.s, t = w.t, x = nullptr;
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

void graph_double_destroy() {
  World w(false);
  H g = nullptr;
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

void graphexec_double_destroy() {
  World w(false);
  H x = exec_of_empty_graph();
  P(cuGraphExecDestroy(x));
  P(cuGraphExecDestroy(x));
}

void graphexec_use_after_destroy() {
  World w(false);
  H s = w.s, x = exec_of_empty_graph();
  Q(cuGraphExecDestroy(x));
  P(cuGraphLaunch(x, s));
}

void graph_null() {
  World w(false);
  H s = w.s, x = nullptr;
  std::size_t n = 0;
  P(cuGraphLaunch(nullptr, s));
  P(cuGraphDestroy(nullptr));
  P(cuGraphExecDestroy(nullptr));
  P(cuGraphInstantiateWithFlags(&x, nullptr, 0));
  P(cuGraphGetNodes(nullptr, nullptr, &n));
}

}  // namespace

const Case kGraphCases[] = {
    {"graph_lifetime", graph_lifetime},
    {"graph_double_destroy", graph_double_destroy},
    {"graphexec_double_destroy", graphexec_double_destroy},
    {"graphexec_use_after_destroy", graphexec_use_after_destroy},
    {"graph_null", graph_null},
    {nullptr, nullptr},
};

}  // namespace conformance
