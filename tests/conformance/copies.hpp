// Graphs of copies: to, between and from arrays, one of which a case may free.
#pragma once

#include "world.hpp"

namespace conformance {

constexpr std::size_t kBytes = 64;
constexpr std::size_t kLarge = std::size_t{4} << 20;  // goes back when it is freed

inline CopyNode copy_between(Ptr source, Ptr target, std::size_t bytes = kBytes) {
  CopyNode copy = {};
  copy.source.type = copy.target.type = fakecuda::kMemoryDevice;
  copy.source.device = source;
  copy.target.device = target;
  copy.width = bytes;
  copy.height = copy.depth = 1;
  return copy;
}

inline Ptr filled(H stream, unsigned value, std::size_t bytes = 2 * kBytes) {
  Ptr memory = 0;
  Q(cuMemAlloc_v2(&memory, bytes));
  Q(cuMemsetD32Async(memory, value, 2 * kBytes / 4, stream));
  return memory;
}

// The first and the last word of the array.
inline void show(const char* name, Ptr memory) {
  unsigned words[2 * kBytes / 4] = {};
  Q(cuCtxSynchronize());
  Q(cuMemcpyDtoHAsync_v2(words, memory, sizeof words, nullptr));
  Q(cuCtxSynchronize());
  std::printf("  %s %u %u\n", name, words[0], words[kBytes / 4 - 1]);
}

inline void launch_and_show(H x, H s, const char* name, Ptr memory) {
  P(cuGraphLaunch(x, s));
  show(name, memory);
}

// A captured copy of `inside` to `between`; before it one of `in` to `inside` is added, after it
// one of `between` to `out`.
struct Edges : World {
  explicit Edges(bool instantiated = true) {
    in = filled(s, 1);
    inside = filled(s, 2);
    between = filled(s, 3);
    out = filled(s, 4);
    Q(cuStreamBeginCapture_v2(s, 1));
    Q(cuMemcpyDtoDAsync_v2(between, inside, kBytes, s));
    Q(cuStreamEndCapture(s, &g));
    body = nodes_of(g)[0];
    const CopyNode into = copy_between(in, inside), from = copy_between(between, out);
    Q(cuGraphAddMemcpyNode(&first, g, nullptr, 0, &into, ctx));
    Q(cuGraphAddDependencies(g, &first, &body, 1));
    Q(cuGraphAddMemcpyNode(&last, g, &body, 1, &from, ctx));
    if (instantiated) Q(cuGraphInstantiateWithFlags(&x, g, 1));
  }
  Ptr in = 0, inside = 0, between = 0, out = 0;
  H body = nullptr, first = nullptr, last = nullptr;
};

struct EdgesOnly : Edges {
  EdgesOnly() : Edges(false) {}
};

// The first copy is of memory that a case frees.
struct Freed : Edges {
  explicit Freed(bool instantiated = true) : Edges(false) {
    large = filled(s, 5, kLarge);
    const CopyNode made = copy_between(large, inside);
    rest = copy_between(inside, inside);
    into = copy_between(filled(s, 6), inside);
    Q(cuGraphMemcpyNodeSetParams(first, &made));
    if (instantiated) Q(cuGraphInstantiateWithFlags(&x, g, 1));
    Q(cuCtxSynchronize());
  }
  void free() const {
    Q(cuCtxSynchronize());
    P(cuMemFree_v2(large));
  }
  Ptr large = 0;
  CopyNode rest = {}, into = {};
};

struct FreedOnly : Freed {
  FreedOnly() : Freed(false) {}
};

}  // namespace conformance
