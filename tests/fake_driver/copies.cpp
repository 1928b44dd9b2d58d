#include "copies.hpp"

#include "capture.hpp"
#include "objects.hpp"

namespace fakecuda {
namespace {

constexpr std::size_t kBytesPerNs = 64;

}  // namespace

Ns time_for(std::size_t bytes) { return static_cast<Ns>(bytes / kBytesPerNs); }

Op copy_op(std::uintptr_t target, std::uintptr_t source, std::size_t size) {
  Op op;
  op.kind = OpKind::kMemcpy;
  op.cost = time_for(size);
  op.address = target;
  op.source = source;
  op.count = size;
  op.element_size = 1;
  return op;
}

MemoryKind kind_of(const State& s, std::uintptr_t address) {
  auto after = s.memory.upper_bound(address);
  if (after == s.memory.begin()) return {};
  const auto& [start, allocation] = *--after;
  if (address - start >= allocation.size) return {};
  return {true, allocation.pooled, allocation.context};
}

bool has_memory(const State& s, const Op& op) {
  const std::size_t size = op.count * op.element_size;
  if (!op.to_host && !is_allocated(s, op.address, size)) return false;
  return op.kind != OpKind::kMemcpy || op.from_host ||
         is_allocated(s, static_cast<DevicePtr>(op.source), size);
}

Node copy_node(const State& s, Op op) {
  Node node = node_of(kNodeMemcpy, std::move(op));
  node.target_kind = kind_of(s, static_cast<std::uintptr_t>(node.op.address));
  node.source_kind = kind_of(s, node.op.source);
  return node;
}

bool can_become(const Node& own, const Node& other) {
  return own.op.to_host == other.op.to_host && own.op.from_host == other.op.from_host &&
         !(own.source_kind != other.source_kind) && !(own.target_kind != other.target_kind);
}

}  // namespace fakecuda
