// What a graph tells of its nodes and edges.
#include <algorithm>
#include <array>

#include "world.hpp"

namespace conformance {
namespace {

const char* set_or_null(const void* pointer) { return pointer != nullptr ? "set" : "NULL"; }

void kernel(H node) {
  KernelNode n = {};
  const char* name = nullptr;
  P(cuGraphKernelNodeGetParams_v2(node, &n));
  std::printf("  grid %u %u %u block %u %u %u shared %u func=%s kern=%s\n", n.grid[0], n.grid[1],
              n.grid[2], n.block[0], n.block[1], n.block[2], n.shared, set_or_null(n.func),
              set_or_null(n.kern));
  if (n.func != nullptr) {
    P(cuFuncGetName(&name, n.func));
  } else {
    P(cuKernelGetName(&name, n.kern));
  }
  std::printf("  name %s\n", name != nullptr ? name : "NULL");
}

void copied(H node) {
  CopyNode n = {};
  P(cuGraphMemcpyNodeGetParams(node, &n));
  std::printf(
      "  types %d %d size %zu %zu %zu pitch %zu %zu height %zu %zu host %s %s device %d %d\n",
      n.source.type, n.target.type, n.width, n.height, n.depth, n.source.pitch, n.target.pitch,
      n.source.height, n.target.height, set_or_null(n.source.host), set_or_null(n.target.host),
      n.source.device != 0, n.target.device != 0);
}

void filled(H node, Ptr target) {
  MemsetNode n = {};
  P(cuGraphMemsetNodeGetParams(node, &n));
  std::printf("  value %u element %u size %zu %zu pitch %zu target same %d\n", n.value,
              n.element_size, n.width, n.height, n.pitch, n.target == target ? 1 : 0);
}

CASE(graph_kernels, World) {
  Q(cuStreamBeginCapture_v2(s, 1));
  P(spin_shaped(s, {{4, 2, 1}, {32, 2, 1}, 64}));
  Q(spin_of_library(s));
  H g = end(s);
  nodes(g);
  for (H one : nodes_of(g)) kernel(one);
}

CASE(graph_kernel_of_library, World) {
  KernelNode n = {};
  const char* name = nullptr;
  Q(cuStreamBeginCapture_v2(s, 1));
  Q(spin_of_library(s));
  H g = end(s);
  P(cuGraphKernelNodeGetParams_v2(nodes_of(g)[0], &n));
  P(cuKernelGetName(&name, n.kern));
  std::printf("  name %s\n", name != nullptr ? name : "NULL");
}

CASE(graph_copies, World) {
  void* pinned = nullptr;
  char pageable[64] = {};
  Q(cuMemAlloc_v2(&d, 256));
  Q(cuMemHostAlloc(&pinned, 64, 0));
  Q(cuStreamBeginCapture_v2(s, 1));
  P(cuMemcpyDtoDAsync_v2(d, d + 64, 48, s));
  P(cuMemcpyDtoHAsync_v2(pinned, d, 48, s));
  P(cuMemcpyHtoDAsync_v2(d, pinned, 48, s));
  P(cuMemcpyDtoHAsync_v2(pageable, d, 48, s));
  P(cuMemcpyHtoDAsync_v2(d, pageable, 48, s));
  H g = end(s);
  nodes(g);
  for (H one : nodes_of(g)) copied(one);
}

CASE(graph_memsets, World) {
  Q(cuMemAlloc_v2(&d, 256));
  Q(cuStreamBeginCapture_v2(s, 1));
  P(cuMemsetD8Async(d, 7, 16, s));
  P(cuMemsetD16Async(d, 0x1234, 16, s));
  P(cuMemsetD32Async(d, 0x12345678, 16, s));
  P(cuMemsetD32Async(d, 9, 0, s));
  P(cuStreamWriteValue64_v2(s, d, 9, 0));
  H g = end(s);
  nodes(g);
  const auto all = nodes_of(g);
  for (int i = 0; i < 3; ++i) filled(all[static_cast<std::size_t>(i)], d);
}

CASE(graph_events, World) {
  H out = nullptr;
  Q(cuStreamBeginCapture_v2(s, 1));
  P(cuStreamWaitEvent(s, e, 1));
  P(cuEventRecordWithFlags(f, s, 1));
  H g = end(s);
  nodes(g);
  const auto all = nodes_of(g);
  H records = all[1];
  P(cuGraphEventRecordNodeGetEvent(records, &out));
  std::printf("  same %d\n", out == f ? 1 : 0);
  P(cuEventDestroy_v2(f));
  P(cuGraphEventRecordNodeGetEvent(records, &out));
  std::printf("  same %d\n", out == f ? 1 : 0);
}

CASE(graph_wrong_nodes, World) {
  H out = nullptr;
  KernelNode k = {};
  CopyNode c = {};
  MemsetNode m = {};
  AllocNode a = {};
  const char* name = nullptr;
  Q(cuStreamBeginCapture_v2(s, 1));
  Q(spin(s, 10));
  P(cuEventRecordWithFlags(f, s, 1));
  H g = end(s);
  const auto all = nodes_of(g);
  H kernel = all[0], record = all[1];
  P(cuGraphKernelNodeGetParams_v2(record, &k));
  P(cuGraphMemcpyNodeGetParams(kernel, &c));
  P(cuGraphMemsetNodeGetParams(kernel, &m));
  P(cuGraphEventRecordNodeGetEvent(kernel, &out));
  P(cuGraphChildGraphNodeGetGraph(kernel, &out));
  P(cuGraphMemAllocNodeGetParams(kernel, &a));
  P(cuGraphKernelNodeGetParams_v2(nullptr, &k));
  P(cuFuncGetName(&name, nullptr));
  P(cuFuncGetName(nullptr, nullptr));
  P(cuKernelGetName(&name, nullptr));
}

void edges(H graph) {
  std::size_t count = 0;
  Q(cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &count));
  std::vector<H> from(count), to(count);
  std::vector<Edge> data(count);
  if (count != 0) Q(cuGraphGetEdges_v2(graph, from.data(), to.data(), data.data(), &count));
  const auto all = nodes_of(graph);
  const auto place = [&](H node) {
    return static_cast<int>(std::find(all.begin(), all.end(), node) - all.begin());
  };
  std::vector<std::array<int, 5>> rows;
  for (std::size_t i = 0; i < count; ++i) {
    rows.push_back(
        {place(from[i]), place(to[i]), data[i].from_port, data[i].to_port, data[i].type});
  }
  std::sort(rows.begin(), rows.end());
  std::printf("  edges=%zu", count);
  for (const auto& one : rows) {
    std::printf(" %d-%d", one[0], one[1]);
    if (one[2] != 0 || one[3] != 0 || one[4] != 0) {
      std::printf("(%d,%d,%d)", one[2], one[3], one[4]);
    }
  }
  std::printf("\n");
}

CASE(graph_edges, World) {
  H from[8] = {}, to[8] = {};
  Q(cuStreamBeginCapture_v2(s, 1));
  Q(spin(s, 10));
  Q(cuEventRecord(e, s));
  Q(cuStreamWaitEvent(t, e, 0));
  Q(spin(t, 10));
  Q(spin(s, 10));
  Q(cuEventRecord(e, t));
  Q(cuStreamWaitEvent(s, e, 0));
  Q(spin(s, 10));
  H g = end(s);
  nodes(g);
  edges(g);
  // A fork and its join, with nothing on the origin in between.
  Q(cuStreamBeginCapture_v2(s, 1));
  Q(spin(s, 10));
  Q(cuEventRecord(e, s));
  Q(cuStreamWaitEvent(t, e, 0));
  Q(spin(t, 10));
  Q(cuEventRecord(e, t));
  Q(cuStreamWaitEvent(s, e, 0));
  Q(spin(s, 10));
  edges(end(s));
  P(cuGraphGetEdges_v2(g, nullptr, nullptr, nullptr, &n));
  P(cuGraphGetEdges(g, nullptr, nullptr, &n));
  std::printf("  n=%zu\n", n);
  n = 8;
  P(cuGraphGetEdges_v2(g, from, to, nullptr, &n));
  std::printf("  n=%zu rest=%s\n", n, set_or_null(from[7]));
  n = 2;
  P(cuGraphGetEdges(g, from, to, &n));
  std::printf("  n=%zu\n", n);
  P(cuGraphGetEdges_v2(nullptr, nullptr, nullptr, nullptr, &n));
  P(cuGraphGetEdges(nullptr, nullptr, nullptr, &n));
  P(cuGraphGetEdges_v2(g, nullptr, nullptr, nullptr, nullptr));
}

CASE(graph_early_edges, World) {
  std::size_t n = 8;
  H from[8] = {}, to[8] = {};
  Q(cuStreamBeginCapture_v2(s, 1));
  Q(spin(s, 10));
  P(spin_early(s));
  H g = end(s);
  nodes(g);
  edges(g);
  P(cuGraphGetEdges(g, from, to, &n));
  n = 8;
  P(cuGraphGetEdges_v2(g, from, to, nullptr, &n));
  n = 0;
  P(cuGraphGetEdges(g, nullptr, nullptr, &n));
  std::printf("  n=%zu\n", n);
}

CASE(graph_child, World) {
  H node = nullptr, second = nullptr, inner = nullptr;
  Q(cuStreamBeginCapture_v2(s, 1));
  Q(spin(s, 5000));
  P(cuEventRecordWithFlags(e, s, 1));
  H child = end(s);
  P(cuGraphCreate(&g, 0));
  P(cuGraphAddChildGraphNode(&node, g, nullptr, 0, child));
  P(cuGraphAddChildGraphNode(&second, g, &node, 1, child));
  P(cuGraphAddChildGraphNode(&second, g, nullptr, 0, nullptr));
  P(cuGraphAddChildGraphNode(&second, nullptr, nullptr, 0, child));
  P(cuGraphDestroy(child));
  nodes(g);
  edges(g);
  P(cuGraphChildGraphNodeGetGraph(node, &inner));
  nodes(inner);
  P(cuGraphInstantiateWithFlags(&x, g, 0));
  P(cuGraphLaunch(x, s));
  P(cuEventQuery(e));
  P(cuStreamSynchronize(s));
  P(cuEventQuery(e));
  P(cuGraphDestroy(g));
  P(cuGraphExecDestroy(x));
}

}  // namespace

}  // namespace conformance
