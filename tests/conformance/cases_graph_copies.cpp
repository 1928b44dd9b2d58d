// Copies that are added to a graph, and what may be changed of them in an executable one.
#include <cstring>

#include "copies.hpp"

namespace conformance {
namespace {

CASE(copies_added, EdgesOnly) {
  H from[2] = {}, to[2] = {};
  Edge data[2] = {};
  std::size_t count = 2;
  CopyNode read = {};
  nodes(g);
  P(cuGraphGetEdges_v2(w.g, from, to, data, &count));
  std::printf("  edges %zu type %d %d\n", count, data[0].type, data[1].type);
  P(cuGraphMemcpyNodeGetParams(w.first, &read));
  std::printf("  size %zu %zu %zu same %d %d\n", read.width, read.height, read.depth,
              read.source.device == in ? 1 : 0, read.target.device == inside ? 1 : 0);
  P(cuGraphInstantiateWithFlags(&x, w.g, 1));
  launch_and_show(x, s, "out", out);
}

CASE(copies_add_arguments, Edges) {
  H n = nullptr, other = nullptr;
  const CopyNode good = copy_between(in, inside);
  CopyNode nothing = copy_between(in, inside, 0);
  CopyNode nowhere = copy_between(64, inside);
  CopyNode flat = copy_between(in, inside);
  flat.height = 0;
  Q(cuGraphCreate(&other, 0));
  P(cuGraphAddMemcpyNode(nullptr, g, nullptr, 0, &good, ctx));
  P(cuGraphAddMemcpyNode(&n, g, nullptr, 0, nullptr, ctx));
  P(cuGraphAddMemcpyNode(&n, g, nullptr, 1, &good, ctx));
  P(cuGraphAddMemcpyNode(&n, other, &first, 1, &good, ctx));
  P(cuGraphAddMemcpyNode(&n, g, nullptr, 0, &nothing, ctx));
  P(cuGraphAddMemcpyNode(&n, g, nullptr, 0, &nowhere, ctx));
  P(cuGraphAddMemcpyNode(&n, g, nullptr, 0, &flat, ctx));
  P(cuGraphAddMemcpyNode(&n, g, nullptr, 0, &good, nullptr));
  P(cuGraphAddDependencies(g, nullptr, nullptr, 0));
  P(cuGraphAddDependencies(g, &first, &body, 1));
  P(cuGraphAddDependencies(g, &first, &first, 1));
  P(cuGraphAddDependencies(g, &last, &first, 1));
  P(cuGraphAddDependencies(other, &first, &body, 1));
  P(cuGraphAddDependencies(g, &first, &last, 1));
  nodes(g);
}

// A launch keeps the addresses that it was launched with, also one that has not begun.
CASE(copies_pointed, Edges) {
  const Ptr in = filled(s, 5), out = filled(s, 6);
  const CopyNode into = copy_between(in, inside), from = copy_between(between, out);
  const CopyNode back = copy_between(w.in, inside);
  Q(spin(s, 20000));
  P(cuGraphLaunch(x, s));
  P(cuGraphExecMemcpyNodeSetParams(x, first, &into, ctx));
  P(cuGraphExecMemcpyNodeSetParams(x, last, &from, ctx));
  P(cuStreamQuery(s));
  P(cuGraphLaunch(x, s));
  P(cuGraphExecMemcpyNodeSetParams(x, first, &back, nullptr));
  show("first out", w.out);
  show("second out", out);
  launch_and_show(x, s, "third out", out);
}

CASE(copies_switched, Edges) {
  const Ptr in = filled(s, 5);
  const CopyNode into = copy_between(in, inside);
  P(cuGraphNodeSetEnabled(x, first, 0));
  launch_and_show(x, s, "out", out);
  P(cuGraphExecMemcpyNodeSetParams(x, first, &into, ctx));
  launch_and_show(x, s, "out, set while it is off", out);
  P(cuGraphNodeSetEnabled(x, first, 1));
  launch_and_show(x, s, "out, on again", out);
  Q(cuMemsetD32Async(out, 9, kBytes / 4, s));
  P(cuGraphNodeSetEnabled(x, body, 0));
  P(cuGraphNodeSetEnabled(x, body, 0));
  P(cuGraphNodeSetEnabled(x, last, 0));
  launch_and_show(x, s, "out, all but one off", out);
  P(cuGraphNodeSetEnabled(nullptr, body, 1));
  P(cuGraphNodeSetEnabled(x, nullptr, 1));
}

// A launch that has not begun when a copy is switched off does it still.
CASE(copies_switched_in_flight, Edges) {
  Q(spin(s, 20000));
  P(cuGraphLaunch(x, s));
  P(cuGraphNodeSetEnabled(x, last, 0));
  P(cuStreamQuery(s));
  show("out", out);
}

CASE(copies_switch_other_nodes, World) {
  Ptr d = filled(s, 1);
  Q(cuStreamBeginCapture_v2(s, 1));
  Q(spin(s, 10));
  Q(cuMemsetD32Async(d, 1, 4, s));
  Q(cuEventRecordWithFlags(e, s, 1));
  Q(cuStreamWaitEvent(s, f, 1));
  H g = end(s);
  const auto all = nodes_of(g);
  H kernel = all[0], memset = all[1], record = all[2], wait = all[3];
  Q(cuGraphInstantiateWithFlags(&x, g, 1));
  P(cuGraphNodeSetEnabled(x, kernel, 0));
  P(cuGraphNodeSetEnabled(x, memset, 0));
  P(cuGraphNodeSetEnabled(x, record, 0));
  P(cuGraphNodeSetEnabled(x, record, 1));
  P(cuGraphNodeSetEnabled(x, wait, 0));
  launch_and_wait(x, s);
  H other = nullptr;
  make_graph(&other, &y);
  P(cuGraphNodeSetEnabled(y, kernel, 0));
}

// What is refused changes nothing.
CASE(copies_refused, Edges) {
  H other = nullptr;
  void* pinned = nullptr;
  Ptr mapped = 0;
  unsigned pageable[2 * kBytes / 4] = {};
  const Ptr in = filled(s, 5);
  Q(cuMemHostAlloc(&pinned, 2 * kBytes, 2));
  Q(cuMemHostGetDevicePointer_v2(&mapped, pinned, 0));
  std::memset(pinned, 7, 2 * kBytes);
  const CopyNode of_pinned = copy_between(mapped, inside);
  CopyNode of_host = copy_between(0, inside);
  of_host.source.type = fakecuda::kMemoryHost;
  of_host.source.host = pinned;
  const CopyNode of_pageable = copy_between(reinterpret_cast<std::uintptr_t>(&pageable[0]), inside);
  const CopyNode of_nothing = copy_between(64, inside);
  CopyNode two_rows = copy_between(in, inside, kBytes / 2);
  two_rows.height = 2;
  two_rows.source.pitch = two_rows.target.pitch = kBytes / 2;
  const CopyNode no_bytes = copy_between(in, inside, 0);
  const CopyNode good = copy_between(in, inside);
  P(cuGraphExecMemcpyNodeSetParams(x, first, &of_pinned, ctx));
  P(cuGraphExecMemcpyNodeSetParams(x, first, &of_host, ctx));
  P(cuGraphExecMemcpyNodeSetParams(x, first, &of_pageable, ctx));
  P(cuGraphExecMemcpyNodeSetParams(x, first, &of_nothing, ctx));
  P(cuGraphExecMemcpyNodeSetParams(x, first, &two_rows, ctx));
  P(cuGraphExecMemcpyNodeSetParams(x, first, &no_bytes, ctx));
  launch_and_show(x, s, "out", out);
  make_graph(&other, &y);
  P(cuGraphExecMemcpyNodeSetParams(y, first, &good, ctx));
  P(cuGraphExecMemcpyNodeSetParams(x, nodes_of(other)[0], &good, ctx));
  P(cuGraphExecMemcpyNodeSetParams(x, body, &good, ctx));
  launch_and_show(x, s, "inside", inside);
  P(cuGraphExecMemcpyNodeSetParams(x, first, nullptr, ctx));
  P(cuGraphExecMemcpyNodeSetParams(nullptr, first, &good, ctx));
  P(cuGraphExecMemcpyNodeSetParams(x, nullptr, &good, ctx));
}

CASE(copies_of_another_size, Edges) {
  const Ptr in = filled(s, 5);
  const CopyNode shorter = copy_between(in, inside, kBytes / 2);
  const CopyNode longer = copy_between(in, inside, 2 * kBytes);
  const CopyNode too_long = copy_between(in, inside, std::size_t{1} << 40);
  P(cuGraphExecMemcpyNodeSetParams(x, first, &shorter, ctx));
  launch_and_show(x, s, "inside", inside);
  P(cuGraphExecMemcpyNodeSetParams(x, first, &longer, ctx));
  launch_and_show(x, s, "inside", inside);
  P(cuGraphExecMemcpyNodeSetParams(x, first, &too_long, ctx));
}

// Memory that was allocated in the order of a stream, and an address within an array.
CASE(copies_of_other_memory, Edges) {
  Ptr pooled = 0;
  Q(cuMemAllocAsync(&pooled, kBytes, s));
  Q(cuMemsetD32Async(pooled, 8, kBytes / 4, s));
  const Ptr in = filled(s, 5);
  const CopyNode of_pool = copy_between(pooled, inside), offset = copy_between(in + 4, inside);
  P(cuGraphExecMemcpyNodeSetParams(x, first, &of_pool, ctx));
  launch_and_show(x, s, "out", out);
  P(cuGraphExecMemcpyNodeSetParams(x, first, &offset, ctx));
  launch_and_show(x, s, "out", out);
  P(cuMemFreeAsync(pooled, s));
}

// An update sets the addresses of the other graph; whether what is off stays off shows at the end.
CASE(copies_updated, Edges) {
  Update u;
  Edges v(false);
  P(cuGraphNodeSetEnabled(x, first, 0));
  Q(cuMemsetD32Async(v.inside, 9, kBytes / 4, v.s));
  Q(cuCtxSynchronize());
  P(cuGraphExecUpdate_v2(x, v.g, &u));
  launch_and_show(x, s, "out", v.out);
}

// Changes of an executable graph while a stream of this thread is being captured.
CASE(copies_changed_in_capture, Edges) {
  const CopyNode into = copy_between(in, inside);
  Q(cuStreamBeginCapture_v2(t, 0));
  P(cuGraphExecMemcpyNodeSetParams(x, first, &into, ctx));
  P(cuGraphNodeSetEnabled(x, first, 0));
  P(cuStreamGetId(s, &id));
  P(cuStreamGetId(t, &id));
  P(cuGraphLaunch(x, s));
  end(t);
}

CASE(copies_in_a_circle, EdgesOnly) {
  P(cuGraphAddDependencies(g, &last, &first, 1));
  P(cuGraphInstantiateWithFlags(&x, g, 1));
}

// What a copy in the graph itself may be changed to.
CASE(copies_of_a_template, Edges) {
  H other = nullptr;
  void* pinned = nullptr;
  Ptr mapped = 0, pooled = 0;
  Q(cuMemHostAlloc(&pinned, 2 * kBytes, 2));
  Q(cuMemHostGetDevicePointer_v2(&mapped, pinned, 0));
  std::memset(pinned, 7, 2 * kBytes);
  Q(cuMemAllocAsync(&pooled, 2 * kBytes, s));
  Q(cuMemsetD32Async(pooled, 8, 2 * kBytes / 4, s));
  const Ptr in = filled(s, 5);
  const CopyNode good = copy_between(in, inside), no_bytes = copy_between(in, inside, 0);
  const CopyNode nowhere = copy_between(64, inside), of_pinned = copy_between(mapped, inside);
  const CopyNode of_pool = copy_between(pooled, inside);
  make_graph(&other, nullptr);
  H kernel = nodes_of(other)[0];
  P(cuGraphMemcpyNodeSetParams(nullptr, &good));
  P(cuGraphMemcpyNodeSetParams(first, nullptr));
  P(cuGraphMemcpyNodeSetParams(kernel, &good));
  P(cuGraphMemcpyNodeSetParams(first, &no_bytes));
  P(cuGraphMemcpyNodeSetParams(first, &nowhere));
  P(cuGraphMemcpyNodeSetParams(first, &of_pinned));
  P(cuGraphMemcpyNodeSetParams(first, &of_pool));
  P(cuGraphInstantiateWithFlags(&y, w.g, 1));
  P(cuGraphLaunch(y, s));
  show("out", out);
  launch_and_show(x, s, "out of the one before", out);
  P(cuGraphExecMemcpyNodeSetParams(y, first, &good, ctx));
  P(cuGraphExecMemcpyNodeSetParams(y, first, &of_pinned, ctx));
  P(cuGraphExecMemcpyNodeSetParams(x, first, &of_pool, ctx));
  P(cuGraphExecMemcpyNodeSetParams(x, first, &of_pinned, ctx));
}

}  // namespace

}  // namespace conformance
