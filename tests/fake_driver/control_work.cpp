// The work that a test puts on a stream, or into its capture, and the memory it looks at. The rules
// are those of a launch; none of it counts as a driver call, and none moves time.
#include <algorithm>
#include <cstring>

#include "call.hpp"
#include "capture.hpp"
#include "graph.hpp"
#include "locked.hpp"
#include "objects.hpp"

using namespace fakecuda;

namespace {

constexpr Ns kTrapNs = 0;  // it has failed when somebody asks next

// `launch` is the driver's own call for such work, which its log names where it is refused.
Result add(const char* function, const char* launch, Handle handle, Node node) {
  std::shared_ptr<Stream> stream;
  Result answer = find_stream(state(), function, handle, stream);
  if (answer == kSuccess) answer = submit(state(), stream, std::move(node));
  log_answer(answer, launch);
  return answer;
}

Node kernel_node(const char* name, OpKind kind, Ns cost) {
  Node node = node_of(kNodeKernel, {});
  node.op.kind = kind;
  node.op.cost = cost;
  node.kernel.function = function_named(state(), name);
  return node;
}

bool is_device_memory(const State& s, DevicePtr address, std::size_t size) {
  return size != 0 && is_allocated(s, address, size);
}

}  // namespace

// A kernel named "work" that runs for `cost` ns.
FAKECUDA_EXPORT int fakecuda_work(Handle stream, Ns cost) {
  const Locked locked;
  return add("fakecuda_work", "cuLaunchKernel", stream, kernel_node("work", OpKind::kWork, cost));
}

// A kernel named "trap" that runs for 1 us and fails: from then on the context answers 719 to
// whoever looks.
FAKECUDA_EXPORT int fakecuda_trap(Handle stream) {
  const Locked locked;
  return add("fakecuda_trap", "cuLaunchKernel", stream,
             kernel_node("trap", OpKind::kTrap, kTrapNs));
}

// A kernel that runs for `cost` ns. Its node shows a CUfunction (`handles` 0), a CUkernel (1) or
// both (2); `programmatic` makes its edges those of a programmatic dependent launch.
FAKECUDA_EXPORT int fakecuda_kernel(Handle stream, const char* name, Ns cost, const unsigned* grid,
                                    const unsigned* block, unsigned shared, int handles,
                                    int programmatic) {
  const Locked locked;
  Node node = kernel_node(name, OpKind::kWork, cost);
  std::copy_n(grid, 3, node.kernel.grid);
  std::copy_n(block, 3, node.kernel.block);
  node.kernel.shared = shared;
  node.kernel.handles = static_cast<KernelHandles>(handles);
  node.kernel.programmatic = programmatic != 0;
  return add("fakecuda_kernel", "cuLaunchKernel", stream, std::move(node));
}

// A copy within the device of so many bytes that nobody looks at.
FAKECUDA_EXPORT int fakecuda_copy(Handle stream, std::size_t size) {
  const Locked locked;
  Node node = node_of(kNodeMemcpy, {});
  node.op.kind = OpKind::kMemcpy;
  node.op.count = size;
  node.op.element_size = 1;
  return add("fakecuda_copy", "cuMemcpyDtoDAsync_v2", stream, std::move(node));
}

// A node of any type, which does nothing and has no parameters; outside a capture, nothing.
FAKECUDA_EXPORT int fakecuda_node(Handle stream, int type) {
  const Locked locked;
  Node node = node_of(static_cast<NodeType>(type), {});
  node.op.kind = OpKind::kJoin;
  return add("fakecuda_node", "cuGraphAddNode", stream, std::move(node));
}

// What the memory of the device holds now; 1 if it is not all allocated.
FAKECUDA_EXPORT int fakecuda_read(DevicePtr address, void* target, std::size_t size) {
  const Locked locked;
  if (!is_device_memory(state(), address, size)) return kInvalidValue;
  std::memcpy(target, reinterpret_cast<const void*>(address), size);
  return kSuccess;
}

FAKECUDA_EXPORT int fakecuda_write(DevicePtr address, const void* source, std::size_t size) {
  const Locked locked;
  if (!is_device_memory(state(), address, size)) return kInvalidValue;
  std::memcpy(reinterpret_cast<void*>(address), source, size);
  return kSuccess;
}

// What CUPTI's functions return, as the driver's do from CUDA 13.1 on.
FAKECUDA_EXPORT Result fakecuda_node_id(Handle node, unsigned long long* id) {
  const Locked locked;
  return number_of_node(state(), node, id);
}

FAKECUDA_EXPORT Result fakecuda_exec_id(Handle handle, unsigned* id) {
  const Locked locked;
  return number_of_exec(state(), handle, id);
}
