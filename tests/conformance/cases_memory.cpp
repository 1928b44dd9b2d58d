// What a stream does to memory, and allocating in stream order.
#include <cstring>

#include "world.hpp"

namespace conformance {
namespace {

CASE(memory_values, World) {
  unsigned char bytes[32] = {};
  Q(cuMemAlloc_v2(&d, 256));
  P(cuMemsetD8Async(d, 0x5a, 3, s));
  P(cuMemsetD16Async(d + 4, 0x1234, 2, s));
  P(cuMemsetD32Async(d + 8, 0xdeadbeef, 1, s));
  P(cuStreamWriteValue64_v2(s, d + 16, 0x0102030405060708ULL, 0));
  P(cuMemcpyDtoDAsync_v2(d + 24, d + 16, 8, s));
  P(cuMemcpyDtoHAsync_v2(bytes, d, 32, s));
  P(cuStreamSynchronize(s));
  std::printf("  bytes");
  for (const unsigned char byte : bytes) std::printf(" %02x", byte);
  std::printf("\n");
  P(cuMemcpyHtoDAsync_v2(d, "seven..", 8, s));
  P(cuMemcpyDtoHAsync_v2(bytes, d, 8, s));
  P(cuStreamSynchronize(s));
  std::printf("  text %s\n", reinterpret_cast<const char*>(bytes));
}

CASE(memory_arguments, World) {
  char bytes[8] = {};
  Q(cuMemAlloc_v2(&d, 256));
  P(cuMemsetD8Async(d, 1, 0, s));
  P(cuMemsetD8Async(64, 1, 1, s));
  P(cuMemsetD16Async(d + 1, 1, 1, s));
  P(cuMemsetD16Async(64, 1, 1, s));
  P(cuStreamWriteValue64_v2(s, d + 4, 1, 0));
  P(cuStreamWriteValue64_v2(s, 64, 1, 0));
  P(cuMemcpyDtoHAsync_v2(bytes, d, 0, s));
  P(cuMemcpyDtoHAsync_v2(bytes, 64, 8, s));
  P(cuMemcpyHtoDAsync_v2(64, bytes, 8, s));
  P(cuMemcpyDtoDAsync_v2(d, 64, 8, s));
  P(cuMemAllocAsync(nullptr, 8, s));
  P(cuMemAllocAsync(&d, 0, s));
  P(cuMemFreeAsync(64, s));
  P(cuCtxSynchronize());
}

// Whether a copy to memory that is not pinned has waited for the stream when it returns.
CASE(copy_to_pageable, World) {
  void* pinned = nullptr;
  char pageable[8] = {};
  Q(cuMemAlloc_v2(&d, 256));
  Q(cuMemHostAlloc(&pinned, 64, 0));
  Q(spin(s, 20000));
  P(cuMemcpyDtoHAsync_v2(pageable, d, 8, s));
  P(cuStreamQuery(s));
  Q(spin(s, 20000));
  P(cuMemcpyDtoHAsync_v2(pinned, d, 8, s));
  P(cuStreamQuery(s));
  P(cuStreamSynchronize(s));
}

CASE(cap_asyncalloc, World) {
  H x2 = nullptr;
  Ptr p = 0;
  Q(cuStreamBeginCapture_v2(s, 1));
  P(cuMemAllocAsync(&p, 4096, s));
  P(cuMemsetD8Async(p, 1, 4096, s));
  H g = end(s);
  nodes(g);
  P(cuGraphInstantiateWithFlags(&x, g, 0));
  P(cuGraphLaunch(x, s));
  launch_and_wait(x, s);
  P(cuMemFreeAsync(p, s));
  launch_and_wait(x, s);
  P(cuGraphInstantiateWithFlags(&x2, g, 0));
}

CASE(graph_allocations, World) {
  H x2 = nullptr;
  Ptr p = 0, q = 0;
  AllocNode params = {};
  Q(cuStreamBeginCapture_v2(s, 1));
  P(cuMemAllocAsync(&p, 4096, s));
  P(cuMemAllocAsync(&q, 100, s));
  P(cuMemFreeAsync(q, s));
  H g = end(s);
  nodes(g);
  const auto all = nodes_of(g);
  P(cuGraphMemAllocNodeGetParams(all[1], &params));
  std::printf("  size %zu address same %d location %d %d access %zu\n", params.size,
              params.address == q ? 1 : 0, params.location_type, params.location_id,
              params.access_count);
  P(cuGraphInstantiateWithFlags(&x, g, 1));
  P(cuGraphLaunch(x, s));
  launch_and_wait(x, s);
  P(cuGraphExecDestroy(x));
  P(cuMemFree_v2(p));
  P(cuGraphInstantiateWithFlags(&x2, g, 0));
  P(cuGraphLaunch(x2, s));
  P(cuStreamSynchronize(s));
  P(cuMemFreeAsync(p, s));
  P(cuStreamSynchronize(s));
  P(cuGraphExecDestroy(x2));
  P(cuGraphDestroy(g));
}

CASE(free_in_order, World) {
  Ptr p = 0;
  P(cuMemAllocAsync(&p, 4096, s));
  P(cuMemsetD8Async(p, 1, 4096, s));
  P(cuMemFreeAsync(p, s));
  P(cuMemFreeAsync(p, s));
  P(cuStreamSynchronize(s));
  P(cuMemAllocAsync(&p, 4096, s));
  P(cuStreamBeginCapture_v2(s, 1));
  P(cuMemFreeAsync(p, s));
  status(s);
  end(s);
}

}  // namespace

}  // namespace conformance
