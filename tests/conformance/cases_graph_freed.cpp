// Copies in graphs whose memory is freed, and what keeps them from harm.
#include "copies.hpp"

namespace conformance {
namespace {

// Copies of an array onto itself in the graph, once there is an executable one.
void copies_at_rest() {
  Freed w;
  H s = w.s, g = w.g, x = w.x, y = nullptr, first = w.first, ctx = w.ctx;
  const CopyNode rest = w.rest, into = w.into;
  P(cuGraphMemcpyNodeSetParams(first, &rest));
  P(cuGraphLaunch(x, s));
  show("out", w.out);
  w.free();
  Q(cuMemsetD32Async(w.inside, 9, kBytes / 4, s));
  P(cuGraphInstantiateWithFlags(&y, g, 1));
  P(cuGraphLaunch(y, s));
  show("out of the second", w.out);
  P(cuGraphExecMemcpyNodeSetParams(x, first, &into, ctx));
  P(cuGraphLaunch(x, s));
  show("out", w.out);
  P(cuGraphExecMemcpyNodeSetParams(y, first, &rest, ctx));
  P(cuGraphExecMemcpyNodeSetParams(y, first, &into, ctx));
  P(cuGraphLaunch(y, s));
  show("out of the second", w.out);
}

// An update brings copies at rest; afterwards they are pointed again.
void copies_updated_at_rest() {
  Freed w;
  H s = w.s, x = w.x, first = w.first, ctx = w.ctx;
  Update u = {-1, nullptr, nullptr};
  Edges v(false);
  const CopyNode rest = copy_between(v.inside, v.inside);
  const CopyNode into = copy_between(filled(v.s, 7), v.inside);
  P(cuGraphMemcpyNodeSetParams(v.first, &rest));
  w.free();
  P(cuGraphExecUpdate_v2(x, v.g, &u));
  P(cuGraphLaunch(x, s));
  show("out", v.out);
  P(cuGraphExecMemcpyNodeSetParams(x, first, &into, ctx));
  P(cuGraphLaunch(x, s));
  show("out", v.out);
}

// A copy that was made of a pool's memory, and then updated to one of other memory.
void copies_of_a_pool_at_rest() {
  Edges w(false);
  H s = w.s, x = nullptr, first = w.first, ctx = w.ctx;
  Ptr pooled = 0;
  Update u = {-1, nullptr, nullptr};
  Q(cuMemAllocAsync(&pooled, kBytes, s));
  Q(cuMemsetD32Async(pooled, 8, kBytes / 4, s));
  Q(cuCtxSynchronize());
  const CopyNode of_pool = copy_between(pooled, w.inside);
  const CopyNode rest = copy_between(w.inside, w.inside), ordinary = copy_between(w.in, w.inside);
  P(cuGraphMemcpyNodeSetParams(first, &of_pool));
  P(cuGraphInstantiateWithFlags(&x, w.g, 1));
  P(cuGraphMemcpyNodeSetParams(first, &rest));
  P(cuGraphExecMemcpyNodeSetParams(x, first, &ordinary, ctx));
  P(cuGraphExecMemcpyNodeSetParams(x, first, &of_pool, ctx));
  P(cuGraphLaunch(x, s));
  show("out", w.out);
  P(cuGraphExecUpdate_v2(x, w.g, &u));
  std::printf("  result=%d\n", u.result);
  P(cuGraphExecMemcpyNodeSetParams(x, first, &of_pool, ctx));
  P(cuGraphExecMemcpyNodeSetParams(x, first, &ordinary, ctx));
  P(cuGraphLaunch(x, s));
  show("out", w.out);
}

void copies_freed_in_template() {
  Freed w(false);
  H x = nullptr;
  w.free();
  P(cuGraphInstantiateWithFlags(&x, w.g, 1));
}

void copies_rest_after_free() {
  Freed w(false);
  H s = w.s, x = nullptr, first = w.first;
  const CopyNode rest = w.rest;
  w.free();
  P(cuGraphMemcpyNodeSetParams(first, &rest));
  P(cuGraphInstantiateWithFlags(&x, w.g, 1));
  P(cuGraphLaunch(x, s));
  show("out", w.out);
}

// Executable copies of memory that was freed since, in whatever is done with them.
void copies_freed_then_pointed() {
  Freed w;
  H s = w.s, x = w.x, first = w.first, ctx = w.ctx;
  const CopyNode into = w.into;
  P(cuGraphLaunch(x, s));
  w.free();
  P(cuGraphExecMemcpyNodeSetParams(x, first, &into, ctx));
  P(cuGraphLaunch(x, s));
  show("out", w.out);
}

void copies_freed_and_off() {
  Freed w;
  H s = w.s, x = w.x, first = w.first, ctx = w.ctx;
  const CopyNode into = w.into;
  P(cuGraphLaunch(x, s));
  w.free();
  P(cuGraphNodeSetEnabled(x, first, 0));
  P(cuGraphLaunch(x, s));
  P(cuStreamSynchronize(s));
  show("out", w.out);
  P(cuGraphExecMemcpyNodeSetParams(x, first, &into, ctx));
  P(cuGraphLaunch(x, s));
  P(cuGraphNodeSetEnabled(x, first, 1));
  P(cuGraphLaunch(x, s));
  show("out, on again", w.out);
}

void copies_freed_and_uploaded() {
  Freed w;
  H s = w.s, x = w.x, first = w.first, ctx = w.ctx;
  const CopyNode into = w.into;
  w.free();
  P(cuGraphUpload(x, s));
  P(cuGraphNodeSetEnabled(x, first, 0));
  P(cuGraphUpload(x, s));
  P(cuGraphLaunch(x, s));
  show("out", w.out);
  P(cuGraphNodeSetEnabled(x, first, 1));
  P(cuGraphExecMemcpyNodeSetParams(x, first, &into, ctx));
  P(cuGraphLaunch(x, s));
  show("out, on again", w.out);
}

void copies_updated_from_freed() {
  Edges w;
  H x = w.x;
  Update u = {-1, nullptr, nullptr};
  Freed v(false);
  v.free();
  P(cuGraphExecUpdate_v2(x, v.g, &u));
}

void copies_freed_and_destroyed() {
  Freed w;
  H s = w.s, g = w.g, x = w.x;
  P(cuGraphLaunch(x, s));
  w.free();
  P(cuGraphExecDestroy(x));
  P(cuGraphDestroy(g));
}

}  // namespace

const Case kGraphFreedCases[] = {
    {"copies_at_rest", copies_at_rest},
    {"copies_updated_at_rest", copies_updated_at_rest},
    {"copies_of_a_pool_at_rest", copies_of_a_pool_at_rest},
    {"copies_freed_in_template", copies_freed_in_template},
    {"copies_rest_after_free", copies_rest_after_free},
    {"copies_freed_then_pointed", copies_freed_then_pointed},
    {"copies_freed_and_off", copies_freed_and_off},
    {"copies_freed_and_uploaded", copies_freed_and_uploaded},
    {"copies_updated_from_freed", copies_updated_from_freed},
    {"copies_freed_and_destroyed", copies_freed_and_destroyed},
    {nullptr, nullptr},
};

}  // namespace conformance
