// Copies in graphs whose memory is freed, and what keeps them from harm.
#include "copies.hpp"

namespace conformance {
namespace {

// Copies of an array onto itself in the graph, once there is an executable one.
CASE(copies_at_rest, Freed) {
  P(cuGraphMemcpyNodeSetParams(first, &rest));
  launch_and_show(x, s, "out", out);
  free();
  Q(cuMemsetD32Async(inside, 9, kBytes / 4, s));
  P(cuGraphInstantiateWithFlags(&y, g, 1));
  P(cuGraphLaunch(y, s));
  show("out of the second", out);
  P(cuGraphExecMemcpyNodeSetParams(x, first, &into, ctx));
  launch_and_show(x, s, "out", out);
  P(cuGraphExecMemcpyNodeSetParams(y, first, &rest, ctx));
  P(cuGraphExecMemcpyNodeSetParams(y, first, &into, ctx));
  P(cuGraphLaunch(y, s));
  show("out of the second", out);
}

// An update brings copies at rest; afterwards they are pointed again.
CASE(copies_updated_at_rest, Freed) {
  Update u;
  Edges v(false);
  const CopyNode rest = copy_between(v.inside, v.inside);
  const CopyNode into = copy_between(filled(v.s, 7), v.inside);
  P(cuGraphMemcpyNodeSetParams(v.first, &rest));
  free();
  P(cuGraphExecUpdate_v2(x, v.g, &u));
  launch_and_show(x, s, "out", v.out);
  P(cuGraphExecMemcpyNodeSetParams(x, first, &into, ctx));
  launch_and_show(x, s, "out", v.out);
}

// A copy that was made of a pool's memory, and then updated to one of other memory.
CASE(copies_of_a_pool_at_rest, EdgesOnly) {
  Ptr pooled = 0;
  Update u;
  Q(cuMemAllocAsync(&pooled, kBytes, s));
  Q(cuMemsetD32Async(pooled, 8, kBytes / 4, s));
  Q(cuCtxSynchronize());
  const CopyNode of_pool = copy_between(pooled, inside);
  const CopyNode rest = copy_between(inside, inside), ordinary = copy_between(in, inside);
  P(cuGraphMemcpyNodeSetParams(first, &of_pool));
  P(cuGraphInstantiateWithFlags(&x, w.g, 1));
  P(cuGraphMemcpyNodeSetParams(first, &rest));
  P(cuGraphExecMemcpyNodeSetParams(x, first, &ordinary, ctx));
  P(cuGraphExecMemcpyNodeSetParams(x, first, &of_pool, ctx));
  launch_and_show(x, s, "out", out);
  P(cuGraphExecUpdate_v2(x, w.g, &u));
  std::printf("  result=%d\n", u.result);
  P(cuGraphExecMemcpyNodeSetParams(x, first, &of_pool, ctx));
  P(cuGraphExecMemcpyNodeSetParams(x, first, &ordinary, ctx));
  launch_and_show(x, s, "out", out);
}

CASE(copies_freed_in_template, FreedOnly) {
  free();
  P(cuGraphInstantiateWithFlags(&x, w.g, 1));
}

CASE(copies_rest_after_free, FreedOnly) {
  free();
  P(cuGraphMemcpyNodeSetParams(first, &rest));
  P(cuGraphInstantiateWithFlags(&x, w.g, 1));
  launch_and_show(x, s, "out", out);
}

// Executable copies of memory that was freed since, in whatever is done with them.
CASE(copies_freed_then_pointed, Freed) {
  P(cuGraphLaunch(x, s));
  free();
  P(cuGraphExecMemcpyNodeSetParams(x, first, &into, ctx));
  launch_and_show(x, s, "out", out);
}

CASE(copies_freed_and_off, Freed) {
  P(cuGraphLaunch(x, s));
  free();
  P(cuGraphNodeSetEnabled(x, first, 0));
  launch_and_wait(x, s);
  show("out", out);
  P(cuGraphExecMemcpyNodeSetParams(x, first, &into, ctx));
  P(cuGraphLaunch(x, s));
  P(cuGraphNodeSetEnabled(x, first, 1));
  launch_and_show(x, s, "out, on again", out);
}

CASE(copies_freed_and_uploaded, Freed) {
  free();
  P(cuGraphUpload(x, s));
  P(cuGraphNodeSetEnabled(x, first, 0));
  P(cuGraphUpload(x, s));
  launch_and_show(x, s, "out", out);
  P(cuGraphNodeSetEnabled(x, first, 1));
  P(cuGraphExecMemcpyNodeSetParams(x, first, &into, ctx));
  launch_and_show(x, s, "out, on again", out);
}

CASE(copies_updated_from_freed, Edges) {
  Update u;
  Freed v(false);
  v.free();
  P(cuGraphExecUpdate_v2(x, v.g, &u));
}

CASE(copies_freed_and_destroyed, Freed) {
  P(cuGraphLaunch(x, s));
  free();
  P(cuGraphExecDestroy(x));
  P(cuGraphDestroy(g));
}

}  // namespace

}  // namespace conformance
